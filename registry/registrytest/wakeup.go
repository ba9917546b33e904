package registrytest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// bell is a registry.WakeUp that rings when the test says so.
type bell struct {
	mu      sync.Mutex // guards the fields below
	ring    func(path string)
	ctx     context.Context
	awaited map[string]int
	calls   int
	dead    bool
}

func (b *bell) Start(ctx context.Context, wake func(string), stopped func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ring, b.ctx, b.awaited = wake, ctx, make(map[string]int)
	context.AfterFunc(ctx, stopped)
}

func (b *bell) Await(path string) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited[path]++
	b.calls++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.awaited[path]--
	}
}

func (b *bell) Alive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.dead
}

// waits waits until somebody awaits path.
func (b *bell) waits(t *testing.T, path string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		n := b.awaited[path]
		b.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("nobody awaits " + path)
		}
	}
}

var wakeUpClauses = []clause{
	{"WakeUp", "a waiter that is woken asks at once, whatever pause it is in", func(t *testing.T, b Backend) {
		path := registry.PathFor("foo")
		for _, what := range []string{path, ""} {
			ring := new(bell)
			p := start(t, b, "a")
			q := start(t, b, "b", registry.WithWakeUp(ring), registry.WithIdleBetweenTries(time.Hour))
			hold := p.lock("foo", registry.WithTTL(time.Minute))
			got := goes(func() error {
				hold, err := q.Obtain("foo").LockContext(context.Background())
				if err == nil {
					err = hold.Unlock(context.Background())
				}
				return err
			})
			ring.waits(t, path)
			ring.ring(path) // it is still held
			ring.ring("something else")
			p.unlock(hold, nil)
			begin := time.Now()
			ring.ring(what)
			if err := ends(t, "the waiter", got); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("woken with %q it took %v", what, took)
			}
			if n := ring.awaited[path]; n != 0 {
				t.Errorf("%d are said to wait after all have left", n)
			}
		}
	}},
	{"WakeUpOnlyWaiters", "nothing is awaited for a try, nor for a lock that is free", func(t *testing.T, b Backend) {
		ring := new(bell)
		p, q := start(t, b, "a"), start(t, b, "b", registry.WithWakeUp(ring))
		q.unlock(q.lock("free"), nil)
		hold := p.lock("foo")
		q.refused("foo")
		if ring.calls != 0 {
			t.Errorf("Await was called %d times", ring.calls)
		}
		if _, err := q.Obtain("foo").TryLockFor(context.Background(), 50*time.Millisecond); !errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("err = %v", err)
		}
		if ring.calls != 1 || ring.awaited[registry.PathFor("foo")] != 0 {
			t.Errorf("Await was called %d times for one wait, and %v were not ended", ring.calls, ring.awaited)
		}
		p.unlock(hold, nil)
	}},
	{"WakeUpSilent", "polling goes on under a wake-up that says nothing", func(t *testing.T, b Backend) {
		for _, dead := range []bool{false, true} {
			p, q := start(t, b, "a"), start(t, b, "b", registry.WithWakeUp(&bell{dead: dead}))
			hold := p.lock("foo")
			got := goes(func() error {
				hold, err := q.Obtain("foo").LockContext(context.Background())
				if err == nil {
					err = hold.Unlock(context.Background())
				}
				return err
			})
			time.Sleep(100 * time.Millisecond)
			p.unlock(hold, nil)
			if err := ends(t, "the waiter", got); err != nil {
				t.Error(err)
			}
		}
	}},
	{"WakeUpEnds", "Close ends the wake-up, and waits for it", func(t *testing.T, b Backend) {
		ring := new(bell)
		p := start(t, b, "a", registry.WithWakeUp(ring))
		if ring.ctx.Err() != nil {
			t.Error("it was ended at once")
		}
		begin := time.Now()
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if ring.ctx.Err() == nil {
			t.Error("it goes on after Close")
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		ring.ring("") // too late, and harmless
	}},
}
