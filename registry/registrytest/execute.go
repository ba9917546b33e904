package registrytest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

var executeClauses = []clause{
	{"ExecuteLocked", "70: two tasks under one lock never meet, and the error of each comes back", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var inside atomic.Int64
		boom := errors.New("boom")
		task := func(context.Context) error {
			if inside.Add(1) != 1 {
				t.Error("two tasks met")
			}
			time.Sleep(10 * time.Millisecond)
			inside.Add(-1)
			return boom
		}
		first := goes(func() error { return p.ExecuteLocked(context.Background(), "foo", task) })
		second := goes(func() error { return q.ExecuteLocked(context.Background(), "foo", task) })
		third := goes(func() error { return p.ExecuteLocked(context.Background(), "foo", task) })
		for _, c := range []<-chan error{first, second, third} {
			if err := ends(t, "a task", c); !errors.Is(err, boom) {
				t.Errorf("err = %v, want boom", err)
			}
		}
		p.noRows(0)
	}},
	{"ExecuteLockedTimesOut", "71: a bounded wait ends with ErrNotAcquired that names the key, and the task does not run", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		for _, r := range []process{p, q} {
			begin := time.Now()
			err := r.ExecuteLocked(context.Background(), "foo", func(context.Context) error {
				t.Error("the task ran without the lock")
				return nil
			}, registry.WithWait(100*time.Millisecond))
			var refused *registry.NotAcquiredError
			if !errors.As(err, &refused) || refused.Key != "foo" || refused.Waited < 100*time.Millisecond {
				t.Errorf("err = %v, want a NotAcquiredError about foo after 100ms", err)
			}
			if took := time.Since(begin); took < 100*time.Millisecond || took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		p.unlock(hold, nil)
	}},
	{"ExecuteLockedJoins", "the task's error and the lost lock are both in the result", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		boom := errors.New("boom")
		err := p.ExecuteLocked(context.Background(), "foo", func(ctx context.Context) error {
			<-ctx.Done()
			return boom
		}, registry.WithTTL(100*time.Millisecond))
		if !errors.Is(err, boom) || !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("err = %v, want boom and ErrLockLost", err)
		}
	}},
	{"ExecuteLockedSaysLostOnce", "a task that returns its context's cause does not report the loss twice", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		err := p.ExecuteLocked(context.Background(), "foo", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, registry.WithTTL(500*time.Millisecond))
		var lost *registry.LostError
		if !errors.As(err, &lost) || !lost.Untaken || strings.Contains(err.Error(), "\n") {
			t.Errorf("err = %v, want what Unlock found out", err)
		}
	}},
	{"HoldFromContext", "a context gives back the innermost hold it was made from", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		if h, ok := registry.HoldFromContext(context.Background()); ok {
			t.Errorf("a plain context has hold %v", h.Key())
		}
		err := p.ExecuteLocked(context.Background(), "foo", func(foo context.Context) error {
			outer, ok := registry.HoldFromContext(foo)
			if !ok || outer.Key() != "foo" || !outer.Held() {
				t.Errorf("inside foo: %v, %v", outer, ok)
			}
			return p.ExecuteLocked(context.WithValue(foo, contextKey{}, 1), "bar", func(bar context.Context) error {
				if inner, ok := registry.HoldFromContext(bar); !ok || inner.Key() != "bar" {
					t.Errorf("inside bar: %v, %v", inner, ok)
				}
				nested, err := p.Obtain("foo").TryLockContext(bar) // joins, from two levels below
				if err != nil {
					return err
				}
				return nested.Unlock(bar)
			})
		})
		if err != nil {
			t.Error(err)
		}
	}},
	{"ExecuteLockedPanics", "a task that panics or exits gives the lock back", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		for _, leave := range []func(){func() { panic("boom") }, runtime.Goexit} {
			done := make(chan any)
			go func() {
				var caught any
				defer func() { done <- caught }()
				defer func() { caught = recover() }()
				p.ExecuteLocked(context.Background(), "foo", func(context.Context) error {
					leave()
					return nil
				})
			}()
			if caught := ends(t, "the task", done); caught != nil && caught != "boom" {
				t.Errorf("recovered %v", caught)
			}
			p.noRows(0)
			p.unlock(p.lock("foo"), nil)
		}
	}},
}
