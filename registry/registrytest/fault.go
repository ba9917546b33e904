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
	{"UnknownAcquire", "an acquire whose answer was lost is taken back: nothing stays locked", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" {
				return after(do)
			}
			return do()
		})
		if _, err := p.Obtain("foo").TryLockContext(context.Background()); !errors.Is(err, registry.ErrUnavailable) {
			t.Fatalf("err = %v, want ErrUnavailable", err)
		}
		begin := time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.repo.Set(nil)
		p.use("foo")
		p.noRows(0)
	}},
	{"UnknownAcquireRepeated", "a wait repeats a request whose answer was lost, and finds the row to be its own", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && calls.Add(1) == 1 {
				return after(do)
			}
			return do()
		})
		begin := time.Now()
		hold := p.lock("foo")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v: the lease of its own lost request was waited out", took)
		}
		p.unlock(hold, nil)
		p.noRows(0)
	}},
	{"LateAcquire", "a request that its caller has left is taken back when it succeeds late", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		arrived, release := make(chan struct{}), make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" {
				close(arrived)
				<-release
			}
			return do()
		})
		ctx, cancel := context.WithCancel(context.Background())
		got := goes(func() error { _, err := p.Obtain("foo").LockContext(ctx); return err })
		ends(t, "the request", arrived)
		cancel()
		begin := time.Now()
		if err := ends(t, "the call", got); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("the call returned %v after its context ended", took)
		}
		p.repo.Set(nil)
		close(release)
		time.Sleep(20 * time.Millisecond)
		begin = time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.noRows(2 * time.Second)
	}},
	{"AnswerTooLate", "a grant whose answer comes after its lease has ended is no acquisition", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		const ttl = 200 * time.Millisecond
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			err := do()
			if op == "acquire" && calls.Add(1) == 1 {
				time.Sleep(ttl + ttl/10)
			}
			return err
		})
		if _, err := p.Obtain("foo").TryLockContext(context.Background(), registry.WithTTL(ttl)); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		hold := p.lock("foo", registry.WithTTL(10*time.Second))
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
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
	{"UnlockReplyLost", "a release whose reply was lost is not a lost lock", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" && calls.Add(1) == 1 {
				return after(do)
			}
			return do()
		})
		p.unlock(hold, nil)
		p.noRows(0)
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
	{"LateRequestsDoNotShorten", "requests that arrive after later ones do not shorten the lease", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var first atomic.Bool
		landed := make(chan error, 2)
		// The first acquire and the first renewal get no answer, and reach the
		// store only after the second ones.
		late := func(_ context.Context, op string, do func() error) error {
			if op == "delete" || !first.CompareAndSwap(false, true) {
				return do()
			}
			go func() {
				time.Sleep(100 * time.Millisecond)
				landed <- do()
			}()
			return errGone
		}
		p.repo.Set(late)
		hold := p.lock("foo", registry.WithTTL(500*time.Millisecond))
		if err := hold.Renew(context.Background(), registry.WithTTL(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the late acquire", landed)
		first.Store(false)
		if err := hold.Renew(context.Background(), registry.WithTTL(500*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the late renewal", landed)
		time.Sleep(550 * time.Millisecond)
		if !hold.Held() {
			t.Fatal("the lease was lost")
		}
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
	}},
	{"HungRequest", "what a hung request leaves is taken back, but never from the call that got the lock meanwhile", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(time.Second)), start(t, b, "b")
		var n atomic.Int64
		landed := make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && n.Add(1) == 1 {
				defer close(landed)
				time.Sleep(2500 * time.Millisecond) // the driver ignores its deadline
				return errGone
			}
			return do()
		})
		hold := p.lock("foo")
		if err := hold.Renew(context.Background(), registry.WithTTL(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the hung request", landed)
		time.Sleep(100 * time.Millisecond)
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
	}},
	{"GhostAfterRelease", "a request that arrives after its lock was given back does not lock it for good", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var n atomic.Int64
		landed := make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op != "acquire" || n.Add(1) > 1 {
				return do()
			}
			go func() {
				defer close(landed)
				time.Sleep(200 * time.Millisecond)
				do()
			}()
			return errGone
		})
		hold := p.lock("foo", registry.WithTTL(20*time.Second))
		p.unlock(hold, nil)
		ends(t, "the late request", landed)
		begin := time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.noRows(2 * time.Second)
	}},
	{"UnlockAfterRefusal", "a release that the database refused once does not excuse a row that is gone", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		b.Expire(t, registry.PathFor("foo"))
		next := q.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" && calls.Add(1) == 1 {
				return errRefused
			}
			return do()
		})
		p.unlock(hold, registry.ErrLockLost)
		q.unlock(next, nil)
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
