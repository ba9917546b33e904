package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// A number in a rule is the behaviour's number in docs/spring.md.
var lockClauses = []clause{
	{"Locker", "1, 10: a lock is a sync.Locker: one goroutine at a time, again and again", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		var l sync.Locker = p.Obtain("foo")
		counter := 0
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					l.Lock()
					counter++ // the race detector watches
					l.Unlock()
				}
			})
		}
		wg.Wait()
		if counter != 20 {
			t.Errorf("counter = %d, want 20", counter)
		}
		if n := p.CacheSize(); n != 1 {
			t.Errorf("%d locks are remembered, want 1", n)
		}
		p.ExpireUnusedOlderThan(-10 * time.Second)
		if n := p.CacheSize(); n != 0 {
			t.Errorf("%d locks are remembered after expiry, want 0", n)
		}
		p.noRows(0)
	}},
	{"LockerTryLock", "TryLock makes one attempt, like sync.Mutex's", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		l := p.Obtain("foo")
		if !l.TryLock() {
			t.Fatal("a free lock was not acquired")
		}
		if l.TryLock() || q.Obtain("foo").TryLock() {
			t.Fatal("a held lock was acquired")
		}
		l.Unlock()
		if !q.Obtain("foo").TryLock() {
			t.Fatal("a lock that was given back was not acquired")
		}
		q.Obtain("foo").Unlock()
	}},
	{"UnlockPanics", "9, 12: Unlock without Lock panics with ErrNotHeld, and takes nothing from a holder", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo")
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, registry.ErrNotHeld) {
					t.Errorf("panic = %v, want ErrNotHeld", err)
				}
			}()
			p.Obtain("foo").Unlock() // what a Hold holds is the Hold's to unlock
		}()
		p.refused("foo")
		p.unlock(hold, nil)
	}},
	{"TwoLocks", "8: two keys are two locks and can be held together", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		foo, bar := p.lock("foo"), p.lock("bar")
		if p.Obtain("foo") == p.Obtain("bar") {
			t.Error("Obtain gave one lock for two keys")
		}
		q.refused("bar")
		p.unlock(foo, nil)
		p.unlock(bar, nil)
	}},
	{"SameLock", "5: the same key is the same lock, also in both spellings of one UUID", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		if first, second := p.Obtain("foo"), p.Obtain("foo"); first != second {
			t.Error("Obtain gave two locks for one key")
		}
		hold := p.lock("ACBD18DB-4CC2-385C-ADEF-654FCCC4A4D8")
		p.refused("acbd18db-4cc2-385c-adef-654fccc4a4d8")
		p.refused("foo") // Java hashes it to that very UUID
		p.unlock(hold, nil)
	}},
	{"Keys", "keys are exact: case, blanks, emoji and 10 kB of text are locks of their own", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		keys := []string{"Job", "job", "Job ", "", "\x00", "\xff", "😀", "日本", "a'b\"c;--", "%s", strings.Repeat("k", 10_000), "1-1-1-1-1"}
		var holds []*registry.Hold
		for _, k := range keys {
			holds = append(holds, p.lock(k))
		}
		for _, k := range keys {
			q.refused(k)
		}
		if n := p.rows(); n != len(keys) {
			t.Errorf("%d rows, want %d", n, len(keys))
		}
		for _, h := range holds {
			p.unlock(h, nil)
		}
	}},
	{"TwoProcesses", "11, 34: a second process waits until the first gives the lock back, round after round", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		for range 5 {
			hold := p.lock("foo")
			var released atomic.Bool
			got := goes(func() error {
				hold, err := q.Obtain("foo").LockContext(context.Background())
				if err != nil {
					return err
				}
				if !released.Load() {
					return errors.New("acquired while the first process held the lock")
				}
				return hold.Unlock(context.Background())
			})
			time.Sleep(30 * time.Millisecond)
			released.Store(true)
			p.unlock(hold, nil)
			if err := ends(t, "the second process", got); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"BothGetIt", "35: two that contend both get the lock", func(t *testing.T, b Backend) {
		var done []<-chan error
		for _, id := range []string{"a", "b"} {
			p := start(t, b, id)
			done = append(done, goes(func() error {
				for range 5 {
					if err := p.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, d := range done {
			if err := ends(t, "a contender", d); err != nil {
				t.Error(err)
			}
		}
	}},
	{"OnlyOneDoesIt", "36: of many clients exactly one finds the work undone", func(t *testing.T, b Backend) {
		const clients = 10
		var done atomic.Int64 // atomic for the race detector; the lock makes it right
		var wg sync.WaitGroup
		for i := range clients {
			p := start(t, b, fmt.Sprint("client-", i))
			wg.Go(func() {
				err := p.ExecuteLocked(context.Background(), "foo", func(context.Context) error {
					if n := done.Load(); n == 0 {
						time.Sleep(5 * time.Millisecond)
						done.Add(1)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := done.Load(); n != 1 {
			t.Errorf("the work was done %d times", n)
		}
	}},
	{"ExclusiveAccess", "37: what one client does under the lock is not interleaved with another's", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var mu sync.Mutex // for the race detector; the lock makes the order
		var list []int
		add := func(n ...int) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, n...)
		}
		hold := p.lock("foo")
		got := goes(func() error {
			return q.ExecuteLocked(context.Background(), "foo", func(context.Context) error {
				add(4, 5, 6)
				return nil
			})
		})
		for i := 1; i <= 3; i++ {
			time.Sleep(10 * time.Millisecond)
			add(i)
		}
		p.unlock(hold, nil)
		if err := ends(t, "the second client", got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(list, []int{1, 2, 3, 4, 5, 6}) {
			t.Errorf("list = %v", list)
		}
	}},
	{"CustomTTL", "3, 4: a call may name its own TTL", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(100*time.Millisecond)), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(5*time.Second))
		time.Sleep(150 * time.Millisecond)
		q.refused("foo")
		p.unlock(hold, nil)
		hold, err := p.Obtain("foo").TryLockFor(context.Background(), 10*time.Second, registry.WithTTL(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		p.unlock(hold, nil)
	}},
	{"PathFor", "23: the mapping from key to LOCK_KEY can be replaced, and is used as it is", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithPathFor(func(key string) string { return "path-" + key }))
		hold := p.lock("foo")
		list, err := p.repo.List(context.Background())
		if err != nil || len(list) != 1 || list[0].Key != "path-foo" || list[0].Name != "foo" {
			t.Errorf("List = %+v, %v, want path-foo named foo", list, err)
		}
		p.unlock(hold, nil)
		for _, bad := range []string{"", strings.Repeat("x", 40), "日本", " x"} {
			q := start(t, b, "b", registry.WithPathFor(func(string) string { return bad }))
			if _, err := q.Obtain("foo").TryLockContext(context.Background()); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("path %q: %v, want ErrInvalid", bad, err)
			}
		}
	}},
	{"SameClientID", "two registries with one client id exclude each other, and closing one frees nothing of the other", func(t *testing.T, b Backend) {
		p, q := start(t, b, "twin"), start(t, b, "twin")
		hold := p.lock("foo")
		q.refused("foo")
		other := q.lock("bar")
		if err := q.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := other.Unlock(context.Background()); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("unlock after Close: %v, want ErrLockLost", err)
		}
		if err := hold.Renew(context.Background()); err != nil {
			t.Errorf("the other registry's lease: %v", err)
		}
		p.unlock(hold, nil)
		p.noRows(0)
	}},
}
