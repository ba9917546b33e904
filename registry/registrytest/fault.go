package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

var errRefused = fmt.Errorf("%w: %w: deadlock", repository.ErrTransient, repository.ErrNotExecuted)

var errGone = fmt.Errorf("%w: connection reset", repository.ErrTransient)

// after makes the call and then loses its answer.
func after(do func() error) error {
	if err := do(); err != nil {
		return err
	}
	return errGone
}

var faultClauses = []clause{
	{"TransientRetried", "errors that pass are waited out: the lock is acquired, renewed and given back", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, _ string, do func() error) error {
			if calls.Add(1)%3 != 0 {
				return errGone
			}
			return do()
		})
		hold := p.lock("foo")
		if err := hold.Renew(context.Background()); err != nil {
			t.Fatal(err)
		}
		p.unlock(hold, nil)
		p.repo.Set(nil)
		p.noRows(2 * time.Second)
	}},
	{"TryDoesNotRetry", "a try says at once that the database does not answer, and never that the lock is held", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		begin := time.Now()
		_, err := p.Obtain("foo").TryLockContext(context.Background())
		if !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, repository.ErrTransient) || errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		if p.Obtain("foo").TryLock() {
			t.Error("TryLock acquired a lock without a database")
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	}},
	{"OutageLimit", "a wait gives up with ErrUnavailable when the database has not answered for the outage limit", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithOutageLimit(200*time.Millisecond))
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		begin := time.Now()
		_, err := p.Obtain("foo").LockContext(context.Background())
		if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took < 200*time.Millisecond || took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err = p.Obtain("bar").LockContext(ctx)
		if !errors.Is(err, registry.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want the context's end and the database's error", err)
		}
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("Lock panicked with %v, want ErrUnavailable", err)
				}
			}()
			p.Obtain("foo").Lock()
		}()
	}},
	{"OutageEnds", "an outage shorter than the limit is waited out", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithOutageLimit(10*time.Second))
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		got := goes(func() error {
			h, err := p.Obtain("foo").LockContext(context.Background())
			if err != nil {
				return err
			}
			return h.Unlock(context.Background())
		})
		time.Sleep(100 * time.Millisecond)
		p.repo.Set(nil)
		if err := ends(t, "the lock", got); err != nil {
			t.Fatal(err)
		}
		p.noRows(5 * time.Second)
	}},
	{"PermanentError", "an error that cannot pass is returned at once, with the key, and the queue goes on", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		broken := errors.New("no such table")
		p.repo.Set(func(context.Context, string, func() error) error { return broken })
		_, err := p.Obtain("foo").LockContext(context.Background())
		if !errors.Is(err, broken) || errors.Is(err, registry.ErrNotAcquired) || errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want the database's error", err)
		}
		for _, call := range []func(){p.Obtain("foo").Lock, func() { p.Obtain("foo").TryLock() }} {
			func() {
				defer func() {
					if err, _ := recover().(error); !errors.Is(err, broken) {
						t.Errorf("panic = %v, want the database's error", err)
					}
				}()
				call()
			}()
		}
		p.repo.Set(nil)
		p.use("foo")
	}},
	{"UnlockRetried", "31 to 33: unlock tries again after an error that passes, and the local queue goes on once", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" && calls.Add(1) == 1 {
				return errGone
			}
			return do()
		})
		p.unlock(hold, nil)
		p.noRows(0)
		first, err := p.tryLock("foo")
		if err != nil {
			t.Fatal(err)
		}
		p.refused("foo") // released twice it would be free twice
		p.unlock(first, nil)
	}},
	{"UnlockFails", "an unlock that cannot reach the database says so, frees the local queue, and the row goes when it can", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(20*time.Second))
		broken := errors.New("permission denied")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" {
				return broken
			}
			return do()
		})
		if err := hold.Unlock(context.Background()); !errors.Is(err, broken) || errors.Is(err, registry.ErrLockLost) {
			t.Errorf("err = %v, want the database's error", err)
		}
		other := p.lock("bar")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" {
				return errGone
			}
			return do()
		})
		begin := time.Now()
		if err := other.Unlock(context.Background()); !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, repository.ErrTransient) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("unlock took %v", took)
		}
		p.repo.Set(nil)
		q.use("bar")
		b.Expire(t, registry.PathFor("foo"))
		p.use("foo")
		p.noRows(2 * time.Second)
	}},
	{"RenewUnanswered", "a renewal without an answer is an error, and the lease goes on to its old end", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo", registry.WithTTL(2*time.Second))
		before := hold.Remaining()
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		if err := hold.Renew(context.Background(), registry.WithTTL(400*time.Millisecond)); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		if left := hold.Remaining(); !hold.Held() || left > before {
			t.Errorf("remaining %v, before it was %v", left, before)
		}
		p.repo.Set(nil)
		p.unlock(hold, nil)
		p.noRows(0)
	}},
	{"OutageIsNotHeld", "a bounded wait that only met an outage says so, not that the lock is held", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		_, err := p.Obtain("foo").TryLockFor(context.Background(), 100*time.Millisecond)
		if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
	}},
	{"DriverHangs", "a driver that never comes back holds up neither a try, nor an unlock, nor Close", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithTTL(time.Second))
		hold := p.lock("foo")
		release := make(chan struct{})
		defer close(release)
		p.repo.Set(func(context.Context, string, func() error) error { <-release; return errGone })
		begin := time.Now()
		if _, err := p.Obtain("bar").TryLockContext(context.Background()); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("try: %v, want ErrUnavailable", err)
		}
		if err := hold.Unlock(context.Background()); err == nil {
			t.Error("unlock: no error")
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("they took %v", took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin = time.Now()
		p.Close(ctx)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	}},
}
