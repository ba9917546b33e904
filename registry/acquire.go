package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

// lock acquires l: the local turn first, then the row. Close waits for it, so
// that no grant slips past.
func (r *JdbcLockRegistry) lock(ctx context.Context, l *JdbcLock, c call) (*Hold, error) {
	r.background.begin()
	defer r.background.done()
	start := time.Now()
	e, err := r.enter(ctx, l, c.wait)
	if err != nil {
		return nil, err
	}
	hold, err := r.acquire(ctx, e, l, c, start)
	if err != nil {
		r.leave(e)
		return nil, err
	}
	if r.isClosing() { // and may not have seen the grant
		return nil, errors.Join(closedError(l.key), hold.Unlock(ctx))
	}
	return hold, nil
}

// acquire is the one loop that takes a row: ask, and while another holds it or
// the database does not answer, pause and ask again.
//
// All requests of a call carry the same attempt number, so that one whose
// outcome stayed unknown is simply repeated: if it did take the row, the next
// one finds the row to be its own.
func (r *JdbcLockRegistry) acquire(ctx context.Context, e *entry, l *JdbcLock, c call, start time.Time) (*Hold, error) {
	req := repository.Request{Key: l.path, Attempt: repository.NewAttempt(), TTL: c.ttl, Name: l.key}
	a := &attempt{registry: r, lease: req.Lease(), ttl: c.ttl}
	refused := &NotAcquiredError{Key: l.key}
	fail := func(err error) (*Hold, error) {
		a.end(false, c.ttl)
		return nil, err
	}
	var silence error // the database's last error, nil once it has answered
	// giveUp ends a wait: because of cause, or of time if that is nil.
	giveUp := func(cause error) (*Hold, error) {
		if silence != nil {
			silence = unavailable("acquire", l.key, silence)
		}
		if silence != nil && refused.held == "" { // nothing says that anybody holds it
			if cause == nil {
				return fail(silence)
			}
			refused.held = "the database does not answer"
		}
		refused.Waited, refused.Cause = time.Since(start), errors.Join(cause, silence)
		return fail(refused)
	}
	steppedBack := e.streak.stepBack(ctx, r, c, start)
	for {
		if r.isClosing() {
			return fail(closedError(l.key))
		}
		if ctx.Err() != nil {
			return giveUp(contextCause(ctx))
		}
		asked := trust{time.Now(), c.ttl}
		out, err := a.request(ctx, req, c.requestLimit(start))
		if err == nil && out.Acquired && asked.remaining() <= 0 {
			// A lease that may have ended before its grant was read is none.
			err = fmt.Errorf("%w: the answer took %v, the TTL is %v", repository.ErrTransient, elapsed(asked.sent), c.ttl)
		}
		a.ghost = a.ghost || unknown(err) || out.Repeated
		var pause time.Duration
		switch {
		case errors.Is(err, errAbandoned):
			continue // it is cleaned up after; the top of the loop says why
		case err == nil && out.Acquired:
			e.outage.end()
			e.streak.granted(r, steppedBack)
			return newGrant(r, e, l.key, a, out.Token, asked, c.terms), nil
		case err == nil:
			silence = nil
			req.Polling = true
			e.outage.end()
			e.streak.broken(r)
			steppedBack = false
			refused.heldBy(out)
			pause = jitter(r.config.idle)
			if out.Remaining > 0 {
				// Just after the end; an expired row is nobody's.
				pause = min(pause, out.Remaining+time.Millisecond)
			}
		case errors.Is(err, repository.ErrTransient):
			silence = err
			if !e.outage.patience(l.key, err, r.config.outageLimit, r.config.logger) || c.wait == 0 {
				return fail(unavailable("acquire", l.key, err))
			}
			pause = e.outage.backoff.next()
		default:
			return fail(fmt.Errorf("registry: acquire lock %s: %w", quote(l.key), err))
		}
		if c.wait >= 0 {
			left := c.wait - time.Since(start)
			if left <= 0 {
				return giveUp(nil)
			}
			pause = min(pause, left) // the last attempt comes when time is up
		}
		r.sleep(ctx, pause)
	}
}

// requestLimit bounds one request: by the lease it asks for, and by the time
// that a call with a bounded wait has, though never to less than a second.
func (c call) requestLimit(start time.Time) time.Duration {
	limit := statementLimit(c.ttl)
	if c.wait >= 0 {
		limit = min(limit, max(time.Second, c.wait-time.Since(start)))
	}
	return limit
}
