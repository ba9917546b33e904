package registrytest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

var errStop = errors.New("stop")

var waitClauses = []clause{
	{"TryIsOneAttempt", "a try makes one attempt; while this process holds the lock it makes none", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		var asked atomic.Int64
		count := func(ctx context.Context, op string, do func() error) error {
			if op == "acquire" {
				asked.Add(1)
			}
			return do()
		}
		p.repo.Set(count)
		q.repo.Set(count)
		if _, err := p.Obtain("foo").TryLockContext(context.Background()); !errors.Is(err, registry.ErrNotAcquired) || asked.Load() != 0 {
			t.Errorf("err = %v after %d attempts, want ErrNotAcquired after none", err, asked.Load())
		}
		_, err := q.Obtain("foo").TryLockContext(context.Background())
		var refused *registry.NotAcquiredError
		if !errors.As(err, &refused) || asked.Load() != 1 {
			t.Fatalf("err = %v after %d attempts, want ErrNotAcquired after one", err, asked.Load())
		}
		if refused.Remaining < 5*time.Second || refused.Remaining > registry.DefaultTTL {
			t.Errorf("Remaining = %v", refused.Remaining)
		}
		if refused.ClientID != "a" && refused.ClientID != "" {
			t.Errorf("ClientID = %q", refused.ClientID)
		}
		p.unlock(hold, nil)
	}},
	{"TryLockFor", "9, 58: a bounded wait ends when its time is up, and is served when the lock comes free before", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		for _, r := range []process{p, q} {
			begin := time.Now()
			if _, err := r.Obtain("foo").TryLockFor(context.Background(), 120*time.Millisecond); !errors.Is(err, registry.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v, want ErrNotAcquired", err)
			}
			if took := time.Since(begin); took < 120*time.Millisecond || took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		for _, r := range []process{p, q} {
			got := goes(func() error {
				h, err := r.Obtain("foo").TryLockFor(context.Background(), time.Hour)
				if err != nil {
					return err
				}
				return h.Unlock(context.Background())
			})
			time.Sleep(30 * time.Millisecond)
			p.unlock(hold, nil)
			if err := ends(t, "the waiter", got); err != nil {
				t.Error(err)
			}
			hold = p.lock("foo")
		}
		p.unlock(hold, nil)
	}},
	{"FirstComeFirstServed", "within a process goroutines get the lock in the order in which they came", func(t *testing.T, b Backend) {
		const n = 20
		p := start(t, b, "a")
		hold := p.lock("foo")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				h, err := p.Obtain("foo").LockContext(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				h.Unlock(context.Background())
			})
			time.Sleep(20 * time.Millisecond) // each is queued before the next comes
		}
		p.unlock(hold, nil)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
	}},
	{"OneContender", "of a process one goroutine per key asks the database, however many wait", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b", registry.WithIdleBetweenTries(5*time.Millisecond))
		var running, most atomic.Int64
		q.repo.Set(func(ctx context.Context, op string, do func() error) error {
			if op == "acquire" {
				n := running.Add(1)
				defer running.Add(-1)
				most.Store(max(most.Load(), n))
			}
			return do()
		})
		hold := p.lock("foo")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := q.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		p.unlock(hold, nil)
		wg.Wait()
		if most.Load() != 1 {
			t.Errorf("%d goroutines asked at once", most.Load())
		}
	}},
	{"ContextEndsWait", "a wait ended by its context matches ErrNotAcquired, the context's error and its cause", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		for _, r := range []process{p, q} { // p waits in its queue, q for the row
			ctx, cancel := context.WithCancelCause(context.Background())
			got := goes(func() error {
				_, err := r.Obtain("foo").LockContext(ctx)
				return err
			})
			time.Sleep(50 * time.Millisecond)
			cancel(errStop)
			err := ends(t, "the wait", got)
			if !errors.Is(err, registry.ErrNotAcquired) || !errors.Is(err, context.Canceled) || !errors.Is(err, errStop) {
				t.Errorf("err = %v, want ErrNotAcquired, context.Canceled and the cause", err)
			}
			ctx, stop := context.WithTimeout(context.Background(), 30*time.Millisecond)
			if _, err := r.Obtain("foo").LockContext(ctx); !errors.Is(err, registry.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v, want ErrNotAcquired and context.DeadlineExceeded", err)
			}
			stop()
			if _, err := r.Obtain("free").LockContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an ended context and a free lock: %v", err)
			}
		}
		p.unlock(hold, nil)
		p.noRows(5 * time.Second)
	}},
	{"ContextLimitsWaitingOnly", "the context of the lock call does not end the lease", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		hold, err := p.Obtain("foo").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if !hold.Held() || hold.Context(context.Background()).Err() != nil {
			t.Error("the hold ended with the lock call's context")
		}
		if err := hold.Renew(ctx); err != nil {
			t.Errorf("renew under an ended context: %v", err)
		}
		q.refused("foo")
		p.unlock(hold, nil)
	}},
	{"CancelThousand", "1,000 waiters whose contexts end return at once and leave nothing behind", func(t *testing.T, b Backend) {
		const n = 1000
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithCancel(context.Background())
		var mu sync.Mutex
		var cancelled, last time.Time
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				_, err := q.Obtain("foo").LockContext(ctx)
				if !errors.Is(err, registry.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
					t.Errorf("err = %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if now := time.Now(); now.After(last) {
					last = now
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		cancelled = time.Now()
		mu.Unlock()
		cancel()
		wg.Wait()
		if took := last.Sub(cancelled); took > 200*time.Millisecond {
			t.Errorf("the last waiter returned after %v", took)
		}
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
		for start := time.Now(); runtime.NumGoroutine() > before+20; time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > 5*time.Second {
				t.Fatalf("%d goroutines, before there were %d", runtime.NumGoroutine(), before)
			}
		}
		if n := q.CacheSize(); n != 1 {
			t.Errorf("%d locks are remembered, want 1", n)
		}
		q.ExpireUnusedOlderThan(0)
		if n := q.CacheSize(); n != 0 {
			t.Errorf("%d locks are in use, want none", n)
		}
		q.unlock(q.lock("foo"), nil)
	}},
	{"CancelledInTheQueue", "a waiter that leaves the queue does not hold up those behind it", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo")
		ctx, cancel := context.WithCancel(context.Background())
		first := goes(func() error { _, err := p.Obtain("foo").LockContext(ctx); return err })
		time.Sleep(20 * time.Millisecond)
		second := goes(func() error {
			return p.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil })
		})
		time.Sleep(20 * time.Millisecond)
		cancel()
		p.unlock(hold, nil) // at the same moment: the turn may come to the one that leaves
		if err := ends(t, "the waiter that left", first); err == nil {
			t.Fatal("it got the lock and nobody unlocks it")
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := ends(t, "the waiter behind it", second); err != nil {
			t.Error(err)
		}
	}},
	{"NobodyShutOut", "processes that keep taking one key do not shut each other out", func(t *testing.T, b Backend) {
		const processes = 3
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var served [processes]atomic.Int64
		var all sync.WaitGroup
		enough := func() bool {
			for i := range served {
				if served[i].Load() < 3 {
					return false
				}
			}
			return true
		}
		for i := range processes {
			p := start(t, b, "p"+string(rune('0'+i)))
			all.Go(func() {
				for !enough() && ctx.Err() == nil {
					err := p.ExecuteLocked(ctx, "foo", func(context.Context) error {
						served[i].Add(1)
						time.Sleep(time.Millisecond)
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if !enough() {
			t.Errorf("served %d, %d and %d times", served[0].Load(), served[1].Load(), served[2].Load())
		}
	}},
	{"WaitsOutTheHolder", "a waiter is there when a dead holder's lease ends, not an idle pause later", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		q := start(t, b, "b", registry.WithIdleBetweenTries(10*time.Second))
		if _, err := p.repo.Acquire(context.Background(), repository.Request{
			Key: registry.PathFor("foo"), Attempt: repository.NewAttempt(), TTL: 300 * time.Millisecond,
		}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		q.unlock(q.lock("foo"), nil)
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %v, the lease had 300ms", took)
		}
	}},
	{"SteadyPolling", "without adaptive polling each pause is IdleBetweenTries long, as Spring's", func(t *testing.T, b Backend) {
		const idle, wait = 100 * time.Millisecond, 600 * time.Millisecond
		looks := func(p process) (n int64) {
			var calls atomic.Int64
			p.repo.Set(func(_ context.Context, op string, do func() error) error {
				if op == "acquire" {
					calls.Add(1)
				}
				return do()
			})
			if _, err := p.Obtain("foo").TryLockFor(context.Background(), wait); !errors.Is(err, registry.ErrNotAcquired) {
				t.Errorf("err = %v, want ErrNotAcquired", err)
			}
			return calls.Load()
		}
		holder := start(t, b, "a")
		hold := holder.lock("foo")
		opts := func(on bool) []registry.Option {
			return []registry.Option{registry.WithIdleBetweenTries(idle), registry.WithAdaptivePolling(on), registry.WithWakeUp(nil)}
		}
		if n := looks(start(t, b, "b", opts(false)...)); n < 3 || n > 2*int64(wait/idle)+2 {
			t.Errorf("%d looks", n)
		}
		if n := looks(start(t, b, "c", opts(true)...)); n < 2*int64(wait/idle)+4 {
			t.Errorf("%d looks when adaptive", n)
		}
		holder.unlock(hold, nil)
	}},
}
