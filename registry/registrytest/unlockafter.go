package registrytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// freeAfter waits until key can be had, and returns how long that took.
func (p process) freeAfter(key string) time.Duration {
	p.t.Helper()
	begin := time.Now()
	p.unlock(p.lock(key), nil)
	return time.Since(begin)
}

var unlockAfterClauses = []clause{
	{"UnlockAfter", "UnlockAfter keeps the lock from everybody until its time has passed, its own process too", func(t *testing.T, b Backend) {
		const keep = 400 * time.Millisecond
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		begin := time.Now()
		if err := hold.UnlockAfter(context.Background(), keep); err != nil {
			t.Fatal(err)
		}
		if hold.Held() {
			t.Error("the hold says it is held")
		}
		p.unlock(hold, registry.ErrNotHeld)
		if err := hold.UnlockAfter(context.Background(), keep); !errors.Is(err, registry.ErrNotHeld) {
			t.Errorf("again: %v, want ErrNotHeld", err)
		}
		p.refused("foo")
		q.refused("foo")
		if info, held, err := q.Info(context.Background(), "foo"); err != nil || !held || info.Remaining <= 0 || info.Remaining > keep {
			t.Errorf("Info = %+v, %v, %v", info, held, err)
		}
		got := goes(func() error { q.freeAfter("foo"); return nil })
		p.freeAfter("foo")
		if took := time.Since(begin); took < keep-10*time.Millisecond {
			t.Errorf("free after %v, want %v", took, keep)
		}
		if err := ends(t, "the other process", got); err != nil {
			t.Fatal(err)
		}
		p.noRows(0)
	}},
	{"UnlockAfterNothing", "without a time UnlockAfter is Unlock", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		for _, d := range []time.Duration{0, -time.Hour} {
			if err := p.lock("foo").UnlockAfter(context.Background(), d); err != nil {
				t.Fatal(err)
			}
			p.noRows(0)
		}
	}},
	{"UnlockAfterWaiter", "a goroutine that waits is not handed the lock early", func(t *testing.T, b Backend) {
		const keep = 300 * time.Millisecond
		p := start(t, b, "a")
		hold := p.lock("foo")
		got := goes(func() error { p.freeAfter("foo"); return nil })
		time.Sleep(20 * time.Millisecond)
		begin := time.Now()
		if err := hold.UnlockAfter(context.Background(), keep); err != nil {
			t.Fatal(err)
		}
		if err := ends(t, "the waiter", got); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < keep-10*time.Millisecond {
			t.Errorf("the waiter had it after %v", took)
		}
	}},
	{"UnlockAfterShared", "of holds that share a lease the latest end counts, whoever is the last", func(t *testing.T, b Backend) {
		const keep = 300 * time.Millisecond
		p := start(t, b, "a")
		hold := p.lock("foo")
		nested, err := p.Obtain("foo").LockContext(hold.Context(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := nested.UnlockAfter(context.Background(), keep); err != nil {
			t.Fatal(err)
		}
		if !hold.Held() {
			t.Error("the outer hold has ended too")
		}
		p.unlock(hold, nil)
		p.freeAfter("foo")
		if took := time.Since(begin); took < keep-10*time.Millisecond {
			t.Errorf("free after %v", took)
		}
	}},
	{"UnlockAfterLost", "nothing is kept of a lease that was lost, and its successor's row is not touched", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(5*time.Second))
		b.Expire(t, registry.PathFor("foo"))
		successor := q.lock("foo")
		if err := hold.UnlockAfter(context.Background(), time.Minute); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("err = %v, want ErrLockLost", err)
		}
		q.unlock(successor, nil)
		q.noRows(0)
	}},
	{"UnlockAfterRetried", "UnlockAfter tries again after an error that passes, with what is left of its time", func(t *testing.T, b Backend) {
		const keep = 600 * time.Millisecond
		p := start(t, b, "a")
		hold := p.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op != "endAfter" {
				return do()
			}
			switch calls.Add(1) {
			case 1:
				return errGone
			case 2:
				return after(do)
			}
			return do()
		})
		begin := time.Now()
		if err := hold.UnlockAfter(context.Background(), keep); err != nil {
			t.Fatal(err)
		}
		if calls.Load() < 3 {
			t.Errorf("%d calls", calls.Load())
		}
		p.freeAfter("foo")
		if took := time.Since(begin); took < keep-10*time.Millisecond {
			t.Errorf("free after %v", took)
		}
		p.noRows(0)
	}},
	{"UnlockAfterFails", "if the row cannot be kept, nothing frees the lock before its lease ends", func(t *testing.T, b Backend) {
		const ttl = 1500 * time.Millisecond
		p, q := start(t, b, "a"), start(t, b, "b")
		begin := time.Now()
		hold := p.lock("foo", registry.WithTTL(ttl))
		broken := errors.New("permission denied")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "endAfter" {
				return broken
			}
			return do()
		})
		if err := hold.UnlockAfter(context.Background(), time.Hour); !errors.Is(err, broken) {
			t.Errorf("err = %v, want the database's error", err)
		}
		q.freeAfter("foo")
		if took := time.Since(begin); took < ttl-10*time.Millisecond {
			t.Errorf("free after %v, want the lease's %v", took, ttl)
		}
		p.repo.Set(nil)
	}},
	{"UnlockAfterOutage", "nor if the database does not answer", func(t *testing.T, b Backend) {
		const ttl = 1500 * time.Millisecond
		p, q := start(t, b, "a"), start(t, b, "b")
		begin := time.Now()
		hold := p.lock("foo", registry.WithTTL(ttl))
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		if err := hold.UnlockAfter(context.Background(), time.Hour); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		p.repo.Set(nil)
		q.freeAfter("foo")
		if took := time.Since(begin); took < ttl-10*time.Millisecond {
			t.Errorf("free after %v, want the lease's %v", took, ttl)
		}
	}},
	{"Info", "Info tells who has a key, and an outage from a free key", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		if info, held, err := q.Info(context.Background(), "foo"); held || err != nil {
			t.Errorf("free: %+v, %v, %v", info, held, err)
		}
		hold := p.lock("foo")
		info, held, err := q.Info(context.Background(), "foo")
		if err != nil || !held || info.ClientID != "a" || info.Name != "foo" || info.Remaining <= 0 {
			t.Errorf("held: %+v, %v, %v", info, held, err)
		}
		p.unlock(hold, nil)
		q.repo.Set(func(context.Context, string, func() error) error { return errGone })
		if _, held, err := q.Info(context.Background(), "foo"); held || !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("no answer: %v, %v, want ErrUnavailable", held, err)
		}
		q.repo.Set(nil)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := q.Info(ended, "foo"); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}
		if err := q.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := q.Info(context.Background(), "foo"); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("closed: %v, want ErrClosed", err)
		}
	}},
}
