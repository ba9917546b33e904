package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// errAbandoned: nobody waits for the answer any more.
var errAbandoned = errors.New("registry: request abandoned")

// request asks the repository once. The statement does not run under the
// caller's context: cancelling it would cost the connection on most drivers,
// and leave open whether it took effect. When the caller's context ends the
// caller leaves at once, and what the answer grants is given back behind it.
func (r *JdbcLockRegistry) request(ctx context.Context, req repository.Request) (repository.Outcome, error) {
	type answer struct {
		out repository.Outcome
		err error
	}
	answers := make(chan answer, 1)
	limit := statementLimit(req.TTL)
	r.background.run(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		out, err := r.repo.Acquire(ctx, req)
		answers <- answer{out, err}
	})
	// A driver may sit on a dead connection beyond its deadline.
	timer := time.NewTimer(limit + limit/4)
	defer timer.Stop()
	var err error
	select {
	case a := <-answers:
		return a.out, a.err
	case <-ctx.Done():
		err = errAbandoned
	case <-r.closing:
		err = errAbandoned
	case <-timer.C:
		err = errNoAnswer
	}
	r.background.run(func() {
		if a := <-answers; a.err != nil || a.out.Acquired {
			r.cleanUp(req.Lease(), req.TTL)
		}
	})
	return repository.Outcome{}, err
}

var errNoAnswer = fmt.Errorf("%w: the driver did not come back in time", repository.ErrTransient)

// ask runs one statement about a lease and does not wait for a driver that
// overruns the deadline of ctx.
func ask(r *JdbcLockRegistry, ctx context.Context, f func(context.Context) (bool, error)) (bool, error) {
	type answer struct {
		ok  bool
		err error
	}
	answers := make(chan answer, 1)
	r.background.run(func() {
		ok, err := f(ctx)
		answers <- answer{ok, err}
	})
	select {
	case a := <-answers:
		return a.ok, a.err
	case <-ctx.Done():
		// The driver gets a moment to say so itself: its answer is the better one.
		timer := time.NewTimer(50 * time.Millisecond)
		defer timer.Stop()
		select {
		case a := <-answers:
			return a.ok, a.err
		case <-timer.C:
			return false, errNoAnswer
		}
	}
}

// cleanUp deletes in the background what a request with an unknown outcome may
// have left, or may still leave when it arrives late: by owner and attempt, so
// that no other lease is touched, until it finds the row or its TTL has passed.
func (r *JdbcLockRegistry) cleanUp(lease repository.Lease, ttl time.Duration) {
	r.background.run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		defer cancel()
		var pause backoff
		for {
			limited, stop := context.WithTimeout(ctx, statementLimit(ttl))
			deleted, err := ask(r, limited, func(ctx context.Context) (bool, error) { return r.repo.Delete(ctx, lease) })
			stop()
			if deleted || err != nil && !errors.Is(err, repository.ErrTransient) || r.isClosing() {
				return
			}
			r.sleep(ctx, pause.next())
			if ctx.Err() != nil {
				return
			}
		}
	})
}

// outage is a stretch of time in which the database did not answer.
type outage struct {
	limit   time.Duration
	log     interface{ Warn(string, ...any) }
	since   time.Time // zero: it answers
	logged  time.Time
	last    error
	backoff backoff
}

// patience takes note of an error and reports whether to go on trying.
func (o *outage) patience(key string, err error) bool {
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	o.last = err
	// The first errors are often a deadlock or a restart, and over at once.
	if now.Sub(o.since) > time.Second && now.Sub(o.logged) > 5*time.Second {
		o.logged = now
		o.log.Warn("lock: the database does not answer, trying on", "key", key, "for", now.Sub(o.since).Round(time.Second), "error", err)
	}
	return now.Sub(o.since) < o.limit
}

func (o *outage) end() { o.since, o.last, o.backoff = time.Time{}, nil, 0 }

// backoff is a pause that doubles: 10 ms, 20 ms, ... 1 s, each with jitter, so
// that processes that failed together do not come back together.
type backoff time.Duration

func (b *backoff) next() time.Duration {
	*b = min(max(10*backoff(time.Millisecond), 2**b), backoff(time.Second))
	return jitter(time.Duration(*b))
}

// sleep pauses and reports whether ctx still stands.
func (b *backoff) sleep(ctx context.Context) bool {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// jitter draws between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// contextCause is what an ended context says: its error, and its cause if that
// is another.
func contextCause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
