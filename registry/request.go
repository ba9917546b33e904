package registry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/intlock/intlock/repository"
)

// answer is what a repository call returned.
type answer[T any] struct {
	value T
	err   error
}

// ask makes a repository call on a goroutine of its own, within limit, and
// returns where its answer will be. The call does not run under the caller's
// context: cancelling a statement costs the connection on most drivers, and
// leaves open whether it took effect. And nobody waits for a driver that sits
// on a dead connection beyond its deadline.
func ask[T any](ctx context.Context, r *JdbcLockRegistry, limit time.Duration, call func(context.Context) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], 1)
	r.background.run(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		value, err := call(ctx)
		answers <- answer[T]{value, err}
	})
	return answers
}

// await waits for an answer: a little longer than limit, so that the driver
// can say itself that its time is up, or until leave or closing is closed; nil
// ones never are.
func await[T any](answers <-chan answer[T], limit time.Duration, leave, closing <-chan struct{}) (T, error) {
	timer := time.NewTimer(limit + grace(limit))
	defer timer.Stop()
	var none T
	select {
	case a := <-answers:
		return a.value, a.err
	case <-leave:
	case <-closing:
	case <-timer.C:
		return none, errNoAnswer
	}
	return none, errAbandoned
}

// grace is how much longer a driver may take to say that its time is up.
func grace(limit time.Duration) time.Duration { return max(limit/4, 50*time.Millisecond) }

var (
	errAbandoned = errors.New("registry: request abandoned")
	errNoAnswer  = fmt.Errorf("%w: the driver did not come back in time", repository.ErrTransient)
)

// unknown reports whether a call that ended with err may have taken effect, or
// may yet.
func unknown(err error) bool {
	return errors.Is(err, repository.ErrTransient) && !errors.Is(err, repository.ErrNotExecuted)
}

// attempt is one lock call's claim to a row: every request of the call names
// it. Requests may arrive at the store after everybody has stopped waiting for
// them, so what one leaves there is deleted, but only once the attempt is
// over: before, it is the lease itself.
type attempt struct {
	registry *JdbcLockRegistry
	lease    repository.Lease
	ttl      time.Duration
	ghost    bool // some request had an unknown outcome; written by the call, then by the one that gives back
	over     atomic.Bool
}

// end marks the attempt as over: the call has failed, or the lease, of at most
// ttl, was given back (or could not be: leftover).
func (a *attempt) end(leftover bool, ttl time.Duration) {
	a.over.Store(true)
	switch {
	case a.ghost:
		a.registry.cleanUp(a.lease, ttl, untilTTL)
	case leftover:
		a.registry.cleanUp(a.lease, ttl, untilFound)
	}
}

// fail ends the attempt of a call that fails with err.
func (a *attempt) fail(err error) error {
	a.end(false, a.ttl)
	return err
}

// request asks the repository for the row once, within limit. When the caller
// leaves before the answer, which it does when its context ends, or when the
// answer does not come, then what the request grants is given back behind it.
func (a *attempt) request(ctx context.Context, req repository.Request, limit time.Duration) (repository.Outcome, error) {
	r := a.registry
	if r.immediate {
		return r.repo.Acquire(context.Background(), req)
	}
	sent := r.acquisitions.send(ctx, req, limit)
	var got answer[repository.Outcome]
	select {
	case got = <-sent.answers:
		if !errors.Is(got.err, errNoAnswer) {
			r.acquisitions.finish(sent)
			return got.value, got.err
		}
	case <-ctx.Done():
		got.err = errAbandoned
	case <-r.closing:
		got.err = errAbandoned
	}
	if errors.Is(got.err, errAbandoned) {
		a.over.Store(true)
		sent.left.Store(true) // should it still wait to be sent, it need not be
	}
	r.background.run(func() {
		late, err := await(sent.answers, limit, nil, nil) // some drivers never come back
		switch {                                          // without an answer the call goes on, and cleans up at its own end
		case !a.over.Load():
		case unknown(err), late.Repeated:
			r.cleanUp(a.lease, a.ttl, untilTTL)
		case late.Acquired:
			r.cleanUp(a.lease, a.ttl, untilFound)
		}
	})
	return got.value, got.err
}

// How long a clean-up goes on: one row that is there, or was, is deleted once.
// But of requests that may arrive at any time there may be several.
const (
	untilFound = false
	untilTTL   = true
)

// cleanUp deletes in the background what a request has left, or may still
// leave when it arrives late: by owner and attempt, so that no other lease is
// touched, and no longer than its TTL, when it ends by itself. When the
// registry closes the first answer is the last, and a few more tries have to
// do.
func (r *JdbcLockRegistry) cleanUp(lease repository.Lease, ttl time.Duration, lasting bool) {
	r.background.run(func() {
		ctx, cancel := context.WithTimeout(r.open, ttl)
		defer cancel()
		start, triesLeft := time.Now(), 5
		for triesLeft > 0 {
			// By itself: the key's next lease may be given back at the same time.
			deleted, err := await(ask(ctx, r, statementLimit(ttl), func(ctx context.Context) (bool, error) {
				return r.repo.Delete(ctx, lease)
			}), statementLimit(ttl), nil, nil)
			permanent := err != nil && !errors.Is(err, repository.ErrTransient)
			if permanent || deleted && !lasting || err == nil && r.isClosing() {
				return
			}
			// What has not arrived after a while may take as long again.
			pause := jitter(max(20*time.Millisecond, time.Since(start)/2))
			if r.isClosing() { // which would end r.sleep at once
				triesLeft--
				sleep(ctx, min(pause, 100*time.Millisecond))
			} else {
				r.sleep(ctx, pause)
			}
			if ctx.Err() != nil {
				return
			}
		}
	})
}

func (r *JdbcLockRegistry) delete(ctx context.Context, lease repository.Lease, limit time.Duration) (bool, error) {
	sent := r.deletions.send(ctx, lease, limit)
	got := <-sent.answers // it comes: the lane sees to that
	if !errors.Is(got.err, errNoAnswer) {
		r.deletions.finish(sent)
	}
	return got.value, got.err
}

// endAfter has the row of a lease stay for d.
func (r *JdbcLockRegistry) endAfter(ctx context.Context, lease repository.Lease, d, limit time.Duration) (bool, error) {
	return await(ask(ctx, r, limit, func(ctx context.Context) (bool, error) {
		return r.repo.EndAfter(ctx, lease, d)
	}), limit, nil, nil)
}
