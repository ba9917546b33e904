package registry_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
)

// alone gives a registry on a memory repository of its own, in virtual time.
func alone(t *testing.T, f func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around), opts ...registry.Option) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := repository.NewMemory(nil)
		if err != nil {
			t.Fatal(err)
		}
		repo := &registrytest.Around{LockRepository: memory}
		locks, err := registry.New(repo, append([]registry.Option{registry.WithOnLost(func(*registry.LostError) {})}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.Background())
		f(t, locks, repo)
	})
}

// TestAloneAndBusy: a process that has a key to itself steps back for others
// that may be there. That costs it little, and never a call whose context ends.
func TestAloneAndBusy(t *testing.T) {
	for _, idle := range []time.Duration{100 * time.Millisecond, 10 * time.Second} {
		t.Run(idle.String(), func(t *testing.T) {
			alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, _ *registrytest.Around) {
				work, length := idle/10, 6000*idle
				begin := time.Now()
				working := time.Duration(0)
				for time.Since(begin) < length {
					err := locks.ExecuteLocked(context.Background(), "hot", func(context.Context) error {
						time.Sleep(work)
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					working += work
				}
				if lost := time.Since(begin) - working; lost > length/20 {
					t.Errorf("%v of %v were lost", lost, length)
				}
				for range 1000 {
					ctx, cancel := context.WithTimeout(context.Background(), idle)
					hold, err := locks.Obtain("hot").LockContext(ctx)
					cancel()
					if err != nil {
						t.Fatalf("a lock that nobody else wants: %v", err)
					}
					time.Sleep(work)
					hold.Unlock(context.Background())
				}
			}, registry.WithIdleBetweenTries(idle))
		})
	}
}

// TestOutageOfMany: those who queue behind a call that waits out an outage do
// not each wait out the limit anew.
func TestOutageOfMany(t *testing.T) {
	down := fmt.Errorf("%w: down", repository.ErrTransient)
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		repo.Set(func(context.Context, string, func() error) error { return down })
		begin := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := locks.Obtain("foo").LockContext(context.Background()); !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("err = %v, want ErrUnavailable", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("20 callers took %v, the limit is 30s", took)
		}
		repo.Set(nil)
		if err := locks.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		// The next trouble is a new one, however short the last lock was ago.
		time.Sleep(time.Minute)
		var n atomic.Int64
		repo.Set(func(_ context.Context, _ string, do func() error) error {
			if n.Add(1) == 1 {
				return down
			}
			return do()
		})
		if err := locks.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// TestCleanUpIsCheap: an unknown outcome is looked after for the whole TTL,
// but less and less often; a request that had no effect leaves nothing to do.
func TestCleanUpIsCheap(t *testing.T) {
	for _, c := range []struct {
		err  error
		most int64
	}{
		{fmt.Errorf("%w: lost", repository.ErrTransient), 60},
		{fmt.Errorf("%w: %w: deadlock", repository.ErrTransient, repository.ErrNotExecuted), 0},
	} {
		alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
			var acquires, deletes atomic.Int64
			repo.Set(func(_ context.Context, op string, do func() error) error {
				switch op {
				case "delete":
					deletes.Add(1)
				case "acquire":
					if acquires.Add(1) == 1 {
						return c.err
					}
				}
				return do()
			})
			hold, err := locks.Obtain("foo").LockContext(context.Background(), registry.WithTTL(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if err := hold.Unlock(context.Background()); err != nil {
				t.Fatal(err)
			}
			deletes.Store(0)
			time.Sleep(2 * time.Hour)
			if n := deletes.Load(); n > c.most {
				t.Errorf("%v: %d deletes after the lock was given back, want at most %d", c.err, n, c.most)
			}
		})
	}
}

// TestContextsOfALongHold: what ends before the hold leaves nothing behind.
func TestContextsOfALongHold(t *testing.T) {
	repo, err := repository.NewMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := registry.New(repo)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	hold, err := locks.Obtain("leader").LockContext(context.Background(), registry.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	request := func() {
		parent, cancel := context.WithCancel(context.Background())
		hold.Context(parent)
		cancel()
	}
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			time.Sleep(20 * time.Millisecond)
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	request()
	before := heap()
	for range 50_000 {
		request()
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("50,000 ended contexts keep %d kB", (after-before)>>10)
	}
	hold.Unlock(context.Background())
}

// TestCloseIsBounded: a driver that hangs on every lease takes Close no longer
// than it says.
func TestCloseIsBounded(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
		for i := range 1000 {
			if _, err := locks.Obtain(fmt.Sprint(i)).LockContext(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		release := make(chan struct{})
		repo.Set(func(context.Context, string, func() error) error { <-release; return repository.ErrTransient })
		begin := time.Now()
		err := locks.Close(context.Background())
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("Close took %v", took)
		}
		if !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("Close = %.200v, want ErrUnavailable", err)
		}
		close(release)
		synctest.Wait()
	})
}
