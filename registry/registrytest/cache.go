package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// use locks and unlocks key.
func (p process) use(key string) {
	p.t.Helper()
	p.unlock(p.lock(key), nil)
}

// remembered fails the test unless obtaining each of keys finds a lock that
// was remembered: the same one as before.
func (p process) remembered(locks map[string]*registry.JdbcLock, keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		if p.Obtain(k) != locks[k] {
			p.t.Errorf("the lock of %s was forgotten", k)
		}
	}
}

var cacheClauses = []clause{
	{"Capacity", "16: the registry remembers as many unused locks as its capacity", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(30))
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 20 {
					p.use(fmt.Sprint("key-", g, "-", i))
				}
			})
		}
		wg.Wait()
		if n := p.CacheSize(); n != 30 {
			t.Errorf("%d locks are remembered, want 30", n)
		}
		p.ExpireUnusedOlderThan(-time.Second)
		if n := p.CacheSize(); n != 0 {
			t.Errorf("%d locks are remembered after expiry, want none", n)
		}
	}},
	{"LeastRecentlyUsed", "17, 18: the lock that was used longest ago is forgotten first", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(3))
		locks := map[string]*registry.JdbcLock{}
		use := func(k string) {
			p.use(k)
			locks[k] = p.Obtain(k)
		}
		for _, k := range []string{"0", "1", "2", "1", "3", "4"} {
			use(k)
		}
		p.remembered(locks, "1", "3", "4")
		if n := p.CacheSize(); n != 3 {
			t.Errorf("%d locks are remembered, want 3", n)
		}
	}},
	{"SetCapacity", "19: the capacity can shrink and grow", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(4))
		locks := map[string]*registry.JdbcLock{}
		for _, k := range []string{"1", "2", "3"} {
			p.use(k)
			locks[k] = p.Obtain(k)
		}
		if err := p.SetCacheCapacity(3); err != nil {
			t.Fatal(err)
		}
		p.use("4")
		locks["4"] = p.Obtain("4")
		p.remembered(locks, "2", "3", "4")
		if err := p.SetCacheCapacity(4); err != nil {
			t.Fatal(err)
		}
		p.use("5")
		if n := p.CacheSize(); n != 4 {
			t.Errorf("%d locks are remembered, want 4", n)
		}
		p.remembered(locks, "3", "4")
		if err := p.SetCacheCapacity(0); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("capacity 0: %v, want ErrInvalid", err)
		}
	}},
	{"HeldIsNeverForgotten", "24, 28: a lock that is held or waited for stays, whatever the capacity", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(2))
		hold := p.lock("1")
		for _, k := range []string{"2", "3", "4"} {
			p.use(k)
		}
		p.ExpireUnusedOlderThan(0)
		p.refused("1")
		if err := p.SetCacheCapacity(1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Obtain("1").TryLockFor(context.Background(), 50*time.Millisecond); !errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("a second local owner: %v", err)
		}
		p.unlock(hold, nil)
		p.use("1")
	}},
	{"CapacityExceeded", "25: when all remembered locks are in use, one more fails with ErrCapacity until one is given back", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(2))
		one, two := p.lock("1"), p.lock("2")
		third := p.Obtain("3")
		if _, err := third.LockContext(context.Background()); !errors.Is(err, registry.ErrCapacity) {
			t.Fatalf("err = %v, want ErrCapacity", err)
		}
		p.unlock(one, nil)
		hold, err := third.LockContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(hold, nil)
		p.unlock(two, nil)
	}},
	{"Shrink", "27: shrinking forgets unused locks; they work again as soon as there is room", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(2))
		one := p.lock("1")
		two := p.Obtain("2")
		if err := p.SetCacheCapacity(1); err != nil {
			t.Fatal(err)
		}
		if n := p.CacheSize(); n != 1 {
			t.Errorf("%d locks are remembered, want the held one", n)
		}
		if _, err := two.TryLockContext(context.Background()); !errors.Is(err, registry.ErrCapacity) {
			t.Errorf("err = %v, want ErrCapacity", err)
		}
		p.unlock(one, nil)
		hold, err := two.LockContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(hold, nil)
	}},
	{"HeldBeyondCapacity", "28: held locks beyond a shrunken capacity stay the same locks, and can be nested", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(2))
		locks := map[string]*registry.JdbcLock{"1": p.Obtain("1"), "2": p.Obtain("2")}
		one, two := p.lock("1"), p.lock("2")
		if err := p.SetCacheCapacity(1); err != nil {
			t.Fatal(err)
		}
		p.remembered(locks, "1", "2")
		nested, err := p.Obtain("1").LockContext(one.Context(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(nested, nil)
		p.unlock(one, nil)
		p.unlock(two, nil)
		if n := p.CacheSize(); n != 1 {
			t.Errorf("%d locks are remembered, want 1", n)
		}
	}},
	{"ForgottenLockWorks", "26: a lock that was forgotten is as good as a fresh one; both share one queue", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithCacheCapacity(1))
		old := p.Obtain("1")
		p.Obtain("2")
		fresh := p.Obtain("1")
		old.Lock()
		if fresh.TryLock() || p.Obtain("1").TryLock() {
			t.Fatal("two local owners of one key")
		}
		fresh.Unlock() // the same lock
		p.noRows(0)
	}},
	{"ManyKeysFewEntries", "never two local owners of a key, while locks come and go", func(t *testing.T, b Backend) {
		const keys, goroutines, rounds = 12, 8, 15
		p := start(t, b, "a", registry.WithCacheCapacity(10))
		var owners [keys]sync.Mutex
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range rounds {
					k := (g*7 + i*5) % keys
					hold, err := p.Obtain(fmt.Sprint(k)).LockContext(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					if !owners[k].TryLock() {
						t.Errorf("two owners of key %d", k)
						return
					}
					owners[k].Unlock()
					if err := hold.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		p.noRows(0)
	}},
}
