package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

// lock acquires l: the local turn first, then the row.
func (r *JdbcLockRegistry) lock(ctx context.Context, l *JdbcLock, c call) (*Hold, error) {
	start := time.Now()
	e, err := r.enter(ctx, l, c.wait)
	if err != nil {
		return nil, err
	}
	g, err := r.acquire(ctx, e, l, c, start)
	if err != nil {
		r.leave(e)
		return nil, err
	}
	r.mu.Lock()
	e.grant = g
	closed := r.closed
	r.mu.Unlock()
	hold := g.members[0]
	if closed {
		hold.Unlock(ctx)
		return nil, closedError(l.key)
	}
	return hold, nil
}

// acquire is the one loop that takes a row: ask, and while another holds it or
// the database does not answer, pause and ask again.
//
// All requests of a call carry the same attempt number, so that one whose
// outcome stayed unknown is simply repeated: if it did take the row, the next
// one finds the row to be its own.
func (r *JdbcLockRegistry) acquire(ctx context.Context, e *entry, l *JdbcLock, c call, start time.Time) (*grant, error) {
	req := repository.Request{Key: l.path, Attempt: repository.NewAttempt(), TTL: c.ttl, Name: l.key}
	refused := &NotAcquiredError{Key: l.key}
	outage := outage{limit: r.config.outageLimit, log: r.config.logger}
	ghost := false // some request of this attempt may have taken the row, or may yet
	fail := func(err error) (*grant, error) {
		if ghost {
			r.cleanUp(req.Lease(), c.ttl)
		}
		return nil, err
	}
	steppedBack := e.streak.stepBack(ctx, r, c.wait)
	for {
		if err := r.over(ctx, l); err != nil {
			refused.Waited = time.Since(start)
			refused.Cause = errors.Join(err, outage.last)
			return fail(refused)
		}
		asked := trust{time.Now(), c.ttl}
		out, err := r.request(ctx, req)
		if err == nil && out.Acquired && asked.remaining() <= 0 {
			// A lease that may have ended before its grant was read is none.
			ghost, err = true, fmt.Errorf("%w: the answer took %v, the TTL is %v", repository.ErrTransient, elapsed(asked.sent), c.ttl)
		}
		var pause time.Duration
		switch {
		case errors.Is(err, errAbandoned):
			continue // request cleans up; over says why
		case err == nil && out.Acquired:
			g := newGrant(r, e, l.key, req.Lease(), asked)
			g.ghost = ghost
			if steppedBack {
				e.streak.unused()
			}
			return g, nil
		case err == nil:
			outage.end()
			e.streak.broken()
			steppedBack = false
			refused.ClientID, refused.Holder, refused.Remaining = out.ClientID, out.Holder, out.Remaining
			pause = jitter(r.config.idle)
			if out.Remaining > 0 {
				// Just after the end; an expired row is nobody's.
				pause = min(pause, out.Remaining+time.Millisecond)
			}
		case errors.Is(err, repository.ErrTransient):
			ghost = true
			if c.wait == 0 || !outage.patience(l.key, err) {
				return fail(unavailable("acquire", l.key, err))
			}
			pause = outage.backoff.next()
		default:
			return fail(fmt.Errorf("registry: acquire lock %s: %w", quote(l.key), err))
		}
		if c.wait >= 0 {
			left := c.wait - time.Since(start)
			if left <= 0 {
				refused.Waited, refused.Cause = time.Since(start), outage.last
				return fail(refused)
			}
			pause = min(pause, left) // the last attempt comes when time is up
		}
		r.sleep(ctx, pause)
	}
}

// over says why a wait has to end.
func (r *JdbcLockRegistry) over(ctx context.Context, l *JdbcLock) error {
	if r.isClosing() {
		return closedError(l.key)
	}
	if ctx.Err() != nil {
		return contextCause(ctx)
	}
	return nil
}

// sleep pauses for d, or until the wait has to end.
func (r *JdbcLockRegistry) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.closing:
	}
}
