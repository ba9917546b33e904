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

// Hook runs around one call: op is "acquire", "renew", "delete", "endAfter",
// "get" or "deleteExpired". What it returns is what the caller gets in place of the call's error. It may call do
// later, from a goroutine of its own, as a network delivers late: the request
// is then executed though its caller has left.
type Hook func(ctx context.Context, op string, do func() error) error

// Set sets the hook; nil calls straight through.
func (a *Around) Set(h Hook) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hook = h
}

// around runs the hook around a call. The result of a call that the hook makes
// after it has returned is nobody's.
func around[T any](a *Around, ctx context.Context, op string, call func() (T, error)) (T, error) {
	a.mu.Lock()
	h := a.hook
	a.mu.Unlock()
	if h == nil {
		return call()
	}
	var mu sync.Mutex // guards result
	var result T
	err := h(ctx, op, func() error {
		out, err := call()
		mu.Lock()
		defer mu.Unlock()
		result = out
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// overtaken is the context of a request that may arrive after its caller's has
// ended: what is on its way is not called back.
func overtaken(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Acquire implements repository.LockRepository.
func (a *Around) Acquire(ctx context.Context, req repository.Request) (repository.Outcome, error) {
	return around(a, ctx, "acquire", func() (repository.Outcome, error) {
		return a.LockRepository.Acquire(overtaken(ctx), req)
	})
}

// Renew implements repository.LockRepository.
func (a *Around) Renew(ctx context.Context, leases []repository.Lease, ttl time.Duration) ([]repository.LeaseStatus, error) {
	return around(a, ctx, "renew", func() ([]repository.LeaseStatus, error) {
		return a.LockRepository.Renew(overtaken(ctx), leases, ttl)
	})
}

// Delete implements repository.LockRepository.
func (a *Around) Delete(ctx context.Context, lease repository.Lease) (bool, error) {
	return around(a, ctx, "delete", func() (bool, error) { return a.LockRepository.Delete(overtaken(ctx), lease) })
}

// EndAfter implements repository.LockRepository.
func (a *Around) EndAfter(ctx context.Context, lease repository.Lease, d time.Duration) (bool, error) {
	return around(a, ctx, "endAfter", func() (bool, error) { return a.LockRepository.EndAfter(overtaken(ctx), lease, d) })
}

// Get implements repository.LockRepository.
func (a *Around) Get(ctx context.Context, key string) (repository.LockInfo, bool, error) {
	type row struct {
		info  repository.LockInfo
		found bool
	}
	got, err := around(a, ctx, "get", func() (r row, err error) {
		r.info, r.found, err = a.LockRepository.Get(overtaken(ctx), key)
		return r, err
	})
	return got.info, got.found, err
}

// DeleteExpired implements repository.LockRepository.
func (a *Around) DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error) {
	type step struct {
		deleted int64
		next    string
	}
	done, err := around(a, ctx, "deleteExpired", func() (s step, err error) {
		s.deleted, s.next, err = a.LockRepository.DeleteExpired(overtaken(ctx), after)
		return s, err
	})
	return done.deleted, done.next, err
}

// batchAround is Around for a repository that takes many requests at once. A
// batch is one call of its operation.
type batchAround struct{ *Around }

func (a batchAround) store() repository.BatchRepository {
	return a.LockRepository.(repository.BatchRepository)
}

// AcquireBatch implements repository.BatchRepository.
func (a batchAround) AcquireBatch(ctx context.Context, reqs []repository.Request) ([]repository.Answer[repository.Outcome], error) {
	return around(a.Around, ctx, "acquire", func() ([]repository.Answer[repository.Outcome], error) {
		return a.store().AcquireBatch(overtaken(ctx), reqs)
	})
}

// DeleteBatch implements repository.BatchRepository.
func (a batchAround) DeleteBatch(ctx context.Context, leases []repository.Lease) ([]repository.Answer[bool], error) {
	return around(a.Around, ctx, "delete", func() ([]repository.Answer[bool], error) {
		return a.store().DeleteBatch(overtaken(ctx), leases)
	})
}
