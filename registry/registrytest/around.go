package registrytest

import (
	"context"
	"sync"
	"time"

	"github.com/intlock/intlock/repository"
)

// Around is a repository whose calls can be made to fail, to be late, or to
// be counted, around a real one. Set replaces what happens around each call;
// do makes the call itself. It is safe for concurrent use.
type Around struct {
	repository.LockRepository

	mu   sync.Mutex // guards hook
	hook Hook
}

// Hook runs around one call: op is "acquire", "renew" or "delete". What it
// returns is what the caller gets in place of the call's error.
type Hook func(ctx context.Context, op string, do func() error) error

// Set sets the hook; nil calls straight through.
func (a *Around) Set(h Hook) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hook = h
}

func (a *Around) call(ctx context.Context, op string, do func() error) error {
	a.mu.Lock()
	h := a.hook
	a.mu.Unlock()
	if h == nil {
		return do()
	}
	return h(ctx, op, do)
}

// Acquire implements repository.LockRepository.
func (a *Around) Acquire(ctx context.Context, req repository.Request) (out repository.Outcome, err error) {
	err = a.call(ctx, "acquire", func() (err error) {
		out, err = a.LockRepository.Acquire(ctx, req)
		return err
	})
	if err != nil {
		out = repository.Outcome{}
	}
	return out, err
}

// Renew implements repository.LockRepository.
func (a *Around) Renew(ctx context.Context, lease repository.Lease, ttl time.Duration) (ok bool, err error) {
	err = a.call(ctx, "renew", func() (err error) {
		ok, err = a.LockRepository.Renew(ctx, lease, ttl)
		return err
	})
	return ok && err == nil, err
}

// Delete implements repository.LockRepository.
func (a *Around) Delete(ctx context.Context, lease repository.Lease) (ok bool, err error) {
	err = a.call(ctx, "delete", func() (err error) {
		ok, err = a.LockRepository.Delete(ctx, lease)
		return err
	})
	return ok && err == nil, err
}
