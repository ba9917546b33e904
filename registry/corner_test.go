package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
)

var errLost = fmt.Errorf("%w: connection reset", repository.ErrTransient)

func bg() context.Context { return context.Background() }

// TestContextEndsAfterRenewal: the context of a renewed lease ends with the new
// end.
func TestContextEndsAfterRenewal(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, _ *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ctx, begin := hold.Context(bg()), time.Now()
		time.Sleep(5 * time.Second)
		hold.Renew(bg())
		<-ctx.Done() // a bubble that waits for ever is a deadlock
		if took := time.Since(begin); took < 14*time.Second || took > 15*time.Second || !errors.Is(context.Cause(ctx), registry.ErrLockLost) {
			t.Errorf("the context ended after %v: %v", took, context.Cause(ctx))
		}
		hold.Unlock(bg())
	})
}

// TestCallerLeavesStatementRuns: a caller that leaves does not cancel the
// statement, which would cost the connection.
func TestCallerLeavesStatementRuns(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		var cancelled atomic.Bool
		repo.Set(func(ctx context.Context, op string, do func() error) error {
			if op == "acquire" {
				time.Sleep(time.Second)
				cancelled.Store(ctx.Err() != nil)
			}
			return do()
		})
		ctx, cancel := context.WithTimeout(bg(), 100*time.Millisecond)
		defer cancel()
		if _, err := locks.Obtain("foo").LockContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if cancelled.Load() {
			t.Error("the statement ran under its caller's context")
		}
	})
}

// TestUnlockMeetsClose: an Unlock that meets Close's delete says what became of
// it.
func TestUnlockMeetsClose(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg())
		if err != nil {
			t.Fatal(err)
		}
		repo.Set(func(_ context.Context, op string, do func() error) error { time.Sleep(time.Second); return do() })
		go locks.Close(bg())
		time.Sleep(1500 * time.Millisecond) // the grace is over, the delete under way
		begin := time.Now()
		if err := hold.Unlock(bg()); !errors.Is(err, registry.ErrLockLost) || time.Since(begin) < 400*time.Millisecond {
			t.Errorf("after %v: %v, want ErrLockLost when the row is gone", time.Since(begin), err)
		}
	})
}

// TestGhostsOutlastAnswers: two requests arrive after the lock was given back,
// one after the other. Neither locks the key for the hour of its TTL.
func TestGhostsOutlastAnswers(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		var n atomic.Int64
		late := func(d time.Duration, do func() error) { time.Sleep(d); do() }
		repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && n.Add(1) <= 2 {
				go late(time.Duration(n.Load())*time.Second, do)
				return errLost
			}
			return do()
		})
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		hold.Unlock(bg())
		time.Sleep(10 * time.Second)
		if rows, _ := repo.List(bg()); len(rows) > 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

// TestCleanUpOfRenewedLease: what has to be cleaned up lasts as long as the
// longest TTL that the lease was given.
func TestCleanUpOfRenewedLease(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := hold.Renew(bg(), registry.WithTTL(time.Hour)); err != nil {
			t.Fatal(err)
		}
		repo.Set(func(context.Context, string, func() error) error { return errLost })
		if err := hold.Unlock(bg()); !errors.Is(err, registry.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		repo.Set(nil)
		time.Sleep(20 * time.Second)
		if rows, _ := repo.List(bg()); len(rows) > 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

// TestCloseInLittleTime: however little time Close has, leases go back.
func TestCloseInLittleTime(t *testing.T) {
	for _, limit := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1100 * time.Millisecond, 2 * time.Second} {
		alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
			for i := range 20 {
				if _, err := locks.Obtain(fmt.Sprint(i)).LockContext(bg()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(bg(), limit)
			defer cancel()
			begin := time.Now()
			if err := locks.Close(ctx); err != nil {
				t.Errorf("Close within %v: %v", limit, err)
			}
			if rows, _ := repo.List(bg()); len(rows) > 0 {
				t.Errorf("Close within %v left %d rows", limit, len(rows))
			}
			if took := time.Since(begin); took > limit+time.Second {
				t.Errorf("Close within %v took %v", limit, took)
			}
		})
	}
}

// TestContextAfterClose: a context made after Close began has ended.
func TestContextAfterClose(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, _ *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg())
		if err != nil {
			t.Fatal(err)
		}
		go locks.Close(bg())
		synctest.Wait()
		if ctx := hold.Context(bg()); !errors.Is(context.Cause(ctx), registry.ErrClosed) {
			t.Errorf("cause = %v, want ErrClosed", context.Cause(ctx))
		}
		if err := hold.Unlock(bg()); err != nil {
			t.Error(err)
		}
	})
}

// TestFailedUnlockIsCleanedUp: the row of an Unlock that failed goes when the
// database is back.
func TestFailedUnlockIsCleanedUp(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		repo.Set(func(_ context.Context, op string, do func() error) error { return errLost })
		if err := hold.Unlock(bg()); !errors.Is(err, registry.ErrUnavailable) {
			t.Error(err)
		}
		repo.Set(nil)
		time.Sleep(10 * time.Second)
		if rows, _ := repo.List(bg()); len(rows) > 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

// TestExpireKeepsTheYoung: only what was unused for long enough is forgotten.
func TestExpireKeepsTheYoung(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, _ *registrytest.Around) {
		locks.Obtain("old")
		time.Sleep(time.Minute)
		locks.Obtain("young")
		locks.ExpireUnusedOlderThan(30 * time.Second)
		if n := locks.CacheSize(); n != 1 {
			t.Errorf("%d locks are remembered, want the young one", n)
		}
		locks.ExpireUnusedOlderThan(0)
		if n := locks.CacheSize(); n != 0 {
			t.Errorf("%d locks are remembered, want none", n)
		}
	})
}

// TestTrustIsWhatWasAnswered: trust counts from before the request, and grows
// by renewals that were answered only.
func TestTrustIsWhatWasAnswered(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		repo.Set(func(_ context.Context, op string, do func() error) error {
			err := do()
			time.Sleep(time.Second)
			return err
		})
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if left := hold.Remaining(); left > 8500*time.Millisecond {
			t.Errorf("%v are trusted, though the request was sent a second ago", left)
		}
		repo.Set(func(context.Context, string, func() error) error { return errLost })
		time.Sleep(time.Second)
		before := hold.Remaining()
		if err := hold.Renew(bg(), registry.WithTTL(10*time.Second)); !errors.Is(err, registry.ErrUnavailable) {
			t.Error(err)
		}
		if left := hold.Remaining(); left > before {
			t.Errorf("%v are trusted after a renewal without answer, before %v", left, before)
		}
		repo.Set(nil)
		hold.Unlock(bg())
	})
}

// TestAnswerWhileLeaving: the grant comes while its caller is on its way out.
func TestAnswerWhileLeaving(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		ctx := &leaving{Context: bg(), done: make(chan struct{}), gone: make(chan struct{})}
		repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" {
				<-ctx.gone
			}
			return do()
		})
		time.AfterFunc(time.Second/2, func() { ctx.ended.Store(true); close(ctx.done) })
		if _, err := locks.Obtain("foo").LockContext(ctx, registry.WithTTL(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if rows, _ := repo.List(bg()); len(rows) > 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

// leaving is a context that takes its time to say that it has ended.
type leaving struct {
	context.Context
	done, gone chan struct{}
	ended      atomic.Bool
	once       sync.Once
}

func (c *leaving) Done() <-chan struct{} { return c.done }

func (c *leaving) Err() error {
	if !c.ended.Load() {
		return nil
	}
	c.once.Do(func() { close(c.gone); time.Sleep(time.Millisecond) })
	return context.Canceled
}
