package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

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
// When the registry closes, the first answer is the last, and with Close it ends.
func (r *JdbcLockRegistry) cleanUp(lease repository.Lease, ttl time.Duration) {
	r.background.run(func() {
		ctx, cancel := context.WithTimeout(r.open, ttl)
		defer cancel()
		var pause backoff
		for {
			limited, stop := context.WithTimeout(ctx, statementLimit(ttl))
			deleted, err := ask(r, limited, func(ctx context.Context) (bool, error) { return r.repo.Delete(ctx, lease) })
			stop()
			answered := err == nil || !errors.Is(err, repository.ErrTransient)
			if deleted || answered && (err != nil || r.isClosing()) {
				return
			}
			if r.isClosing() { // which would end r.sleep at once
				pause.sleep(ctx)
			} else {
				r.sleep(ctx, pause.next())
			}
			if ctx.Err() != nil {
				return
			}
		}
	})
}
