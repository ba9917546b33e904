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
	defer r.background.finish()
	start := time.Now()
	for now := start; ; now = time.Now() {
		e, hold, now, err := r.enter(ctx, l, c, start, now)
		if err != nil {
			return nil, err
		}
		if hold == nil {
			if hold, err = r.acquire(ctx, e, l, c, start, now); err != nil {
				r.leave(e)
				return nil, err
			}
		} else if !hold.Held() { // handed on, but this goroutine woke too late
			late := hold
			r.background.run(func() { late.Unlock(context.Background()) })
			continue
		}
		if r.isClosing() { // and may not have seen the grant
			return nil, errors.Join(closedError(l.key), hold.Unlock(ctx))
		}
		return hold, nil
	}
}

// acquire is the one loop that takes a row: ask, and while another holds it or
// the database does not answer, pause and ask again.
//
// All requests of a call carry the same attempt number, so that one whose
// outcome stayed unknown is simply repeated: if it did take the row, the next
// one finds the row to be its own.
func (r *JdbcLockRegistry) acquire(ctx context.Context, e *entry, l *JdbcLock, c call, start, now time.Time) (*Hold, error) {
	req := repository.Request{Key: l.path, Attempt: repository.NewAttempt(), TTL: c.ttl, Name: l.key}
	g := &grant{registry: r, entry: e, key: l.key, terms: c.terms}
	g.claim.registry, g.claim.lease, g.claim.ttl = r, req.Lease(), c.ttl
	g.attempt = &g.claim
	w := wait{call: c, registry: r, key: l.key, start: start}
	defer w.end()
	refusals := 0 // by the database, of a try
	steppedBack := e.streak.stepBack(ctx, r, c, start, now)
	if steppedBack {
		now = time.Now()
	}
	for ; ; now = time.Now() {
		if r.isClosing() {
			return nil, g.attempt.fail(closedError(l.key))
		}
		if ctx.Err() != nil {
			return nil, g.attempt.fail(w.giveUp(contextCause(ctx)))
		}
		asked := trust{now, c.ttl}
		out, err := g.attempt.request(ctx, req, c.requestLimit(asked.sent, start))
		if !r.immediate {
			now = time.Now()
		}
		if err == nil && out.Acquired && asked.at(now) <= 0 {
			// A lease that may have ended before its grant was read is none.
			err = fmt.Errorf("%w: the answer took %v, the TTL is %v", repository.ErrTransient, elapsed(asked.sent), c.ttl)
		}
		g.attempt.ghost = g.attempt.ghost || unknown(err) || out.Repeated
		var pause time.Duration
		switch {
		case errors.Is(err, errAbandoned):
			continue // it is cleaned up after; the top of the loop says why
		case err == nil && out.Acquired:
			e.outage.end()
			e.streak.granted(r, steppedBack, now)
			g.token, g.began = out.Token, asked.sent
			r.mu.Lock()
			hold := g.begin(asked, now)
			r.mu.Unlock()
			return hold, nil
		case err == nil:
			req.Polling = true
			e.outage.end()
			e.streak.broken(r)
			steppedBack = false
			pause = w.refused(e, out)
		case errors.Is(err, repository.ErrTransient):
			w.silence = err
			if c.wait == 0 && errors.Is(err, repository.ErrNotExecuted) && refusals < mostRefusals {
				refusals++
				w.pause(ctx, time.Duration(refusals)*refusalPause)
				continue
			}
			if !e.outage.patience(l.key, err, r.config.outageLimit, r.config.logger) || c.wait == 0 {
				return nil, g.attempt.fail(unavailable("acquire", l.key, err))
			}
			pause = e.outage.backoff.next()
		default:
			return nil, g.attempt.fail(fmt.Errorf("registry: acquire lock %s: %w", quote(l.key), err))
		}
		if c.wait >= 0 {
			left := c.wait - time.Since(start)
			if left <= 0 {
				return nil, g.attempt.fail(w.giveUp(nil))
			}
			pause = min(pause, left) // the last attempt comes when time is up
		}
		w.pause(ctx, pause)
	}
}

// A try that the database refused without an answer, as the victim of a deadlock or
// because its file is busy, is repeated so often, after pauses that grow by so much:
// many duplicates of one request come at the same moment.
const (
	mostRefusals = 3
	refusalPause = 3 * time.Millisecond
)

// requestLimit bounds one request: by the lease it asks for, and by the time
// that a call with a bounded wait has, though never to less than a second.
func (c call) requestLimit(now, start time.Time) time.Duration {
	limit := statementLimit(c.ttl)
	if c.wait >= 0 {
		limit = min(limit, max(time.Second, c.wait-now.Sub(start)))
	}
	return limit
}
