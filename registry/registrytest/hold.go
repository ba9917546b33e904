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

type contextKey struct{}

var holdClauses = []clause{
	{"Handle", "whoever has the hold may unlock it, once", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		if !hold.Held() || hold.Remaining() <= 0 || hold.Remaining() > registry.DefaultTTL || hold.Key() != "foo" {
			t.Errorf("held %v, remaining %v, key %q", hold.Held(), hold.Remaining(), hold.Key())
		}
		if err := ends(t, "unlock", goes(func() error { return hold.Unlock(context.Background()) })); err != nil {
			t.Fatal(err)
		}
		successor := q.lock("foo")
		p.unlock(hold, registry.ErrNotHeld)
		if hold.Held() || hold.Remaining() != 0 {
			t.Error("an unlocked hold says it is held")
		}
		if err := hold.Renew(context.Background()); !errors.Is(err, registry.ErrNotHeld) {
			t.Errorf("renew after unlock: %v, want ErrNotHeld", err)
		}
		q.unlock(successor, nil)
	}},
	{"Context", "the hold's context ends with the hold, with its parent, and when the lease is lost, and says which", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		parent, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "v"))
		hold := p.lock("foo")
		ctx, child := hold.Context(context.Background()), hold.Context(parent)
		if ctx.Err() != nil || child.Err() != nil || child.Value(contextKey{}) != "v" {
			t.Fatalf("a fresh context: %v, %v, value %v", ctx.Err(), child.Err(), child.Value(contextKey{}))
		}
		cancel()
		ends(t, "the child of a cancelled parent", child.Done())
		if ctx.Err() != nil || !hold.Held() {
			t.Error("the parent's end reached further than its child")
		}
		p.unlock(hold, nil)
		ends(t, "the context after unlock", ctx.Done())
		if cause := context.Cause(ctx); !errors.Is(cause, registry.ErrReleased) {
			t.Errorf("cause = %v, want ErrReleased", cause)
		}
		if late := hold.Context(context.Background()); !errors.Is(context.Cause(late), registry.ErrReleased) {
			t.Errorf("a context made after unlock: cause %v", context.Cause(late))
		}

		const ttl = 300 * time.Millisecond
		granted := time.Now()
		hold = p.lock("bar", registry.WithTTL(ttl))
		ctx = hold.Context(context.Background())
		ends(t, "the context of a lost lease", ctx.Done())
		if took := time.Since(granted); took >= ttl+100*time.Millisecond {
			t.Errorf("the context ended after %v, the TTL is %v", took, ttl)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, registry.ErrLockLost) || hold.Held() {
			t.Errorf("cause = %v, held %v, want ErrLockLost and not held", cause, hold.Held())
		}
		p.unlock(hold, registry.ErrLockLost)
	}},
	{"TrustEndsFirst", "a holder stops trusting its lease before anyone else can have the lock", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b", registry.WithIdleBetweenTries(time.Millisecond))
		for range 3 {
			hold := p.lock("foo", registry.WithTTL(300*time.Millisecond))
			next := q.lock("foo")
			if hold.Held() {
				t.Fatal("two holders believe in the lock")
			}
			p.unlock(hold, registry.ErrLockLost)
			q.unlock(next, nil)
		}
	}},
	{"LostToAnother", "21, 38: unlocking a lease that another process took reports it lost, and leaves the other alone", func(t *testing.T, b Backend) {
		var told atomic.Int64
		p := start(t, b, "a", registry.WithOnLost(func(err *registry.LostError) { told.Add(1) }))
		q := start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(100*time.Millisecond))
		next := q.lock("foo")
		var lost *registry.LostError
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Untaken || lost.Key != "foo" {
			t.Fatalf("unlock = %v (%+v), want a LostError of a lock that was taken", err, lost)
		}
		p.unlock(hold, registry.ErrNotHeld)
		p.refused("foo")
		time.Sleep(20 * time.Millisecond)
		if told.Load() != 1 {
			t.Errorf("OnLost was called %d times, want once", told.Load())
		}
		q.unlock(next, nil)
	}},
	{"LostRow", "22: unlocking or renewing a lease whose row was deleted reports it lost", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		for _, end := range []func(*registry.Hold) error{
			func(h *registry.Hold) error { return h.Unlock(context.Background()) },
			func(h *registry.Hold) error {
				return errors.Join(h.Renew(context.Background()), h.Unlock(context.Background()))
			},
		} {
			hold := p.lock("foo")
			ctx := hold.Context(context.Background())
			b.Expire(t, registry.PathFor("foo"))
			if n, err := q.repo.DeleteExpired(context.Background()); err != nil || n != 1 {
				t.Fatalf("DeleteExpired = %d, %v", n, err)
			}
			if err := end(hold); !errors.Is(err, registry.ErrLockLost) {
				t.Errorf("err = %v, want ErrLockLost", err)
			}
			ends(t, "the context", ctx.Done())
		}
	}},
	{"LostUntaken", "a lease that ran out is lost even if nobody took it; Unlock says that nobody did", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo", registry.WithTTL(100*time.Millisecond))
		time.Sleep(150 * time.Millisecond)
		var lost *registry.LostError
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || !lost.Untaken || lost.Reason != registry.LossExpired {
			t.Errorf("unlock = %v, want an expired lease that nobody took", err)
		}
		p.noRows(0)
	}},
	{"LostLocker", "a lock that was lost under the sync.Locker view reaches OnLost, and Err keeps it", func(t *testing.T, b Backend) {
		told := make(chan *registry.LostError, 10)
		p := start(t, b, "a", registry.WithTTL(100*time.Millisecond), registry.WithOnLost(func(err *registry.LostError) { told <- err }))
		l := p.Obtain("foo")
		l.Lock()
		time.Sleep(150 * time.Millisecond)
		l.Unlock()
		if err := ends(t, "OnLost", told); err.Key != "foo" {
			t.Errorf("OnLost was told about %q", err.Key)
		}
		if !errors.Is(l.Err(), registry.ErrLockLost) {
			t.Errorf("Err = %v, want ErrLockLost", l.Err())
		}
		l.Lock()
		time.Sleep(time.Millisecond)
		l.Unlock()
		if l.Err() != nil {
			t.Errorf("Err after a good Unlock = %v", l.Err())
		}
	}},
	{"OnLostUsesRegistry", "OnLost may take locks and close the registry", func(t *testing.T, b Backend) {
		var p process
		told := make(chan error, 1)
		p = start(t, b, "a", registry.WithOnLost(func(*registry.LostError) {
			err := p.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil })
			told <- errors.Join(err, p.Close(context.Background()))
		}))
		hold := p.lock("foo")
		b.Expire(t, registry.PathFor("foo"))
		if n, err := p.repo.DeleteExpired(context.Background()); err != nil || n != 1 {
			t.Fatalf("DeleteExpired = %d, %v", n, err)
		}
		unlocked := goes(func() error { return hold.Unlock(context.Background()) })
		if err := ends(t, "Unlock", unlocked); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("unlock = %v, want ErrLockLost", err)
		}
		if err := ends(t, "OnLost", told); err != nil {
			t.Errorf("inside OnLost: %v", err)
		}
	}},
	{"Renew", "13, 15, 39: renewing keeps the lock beyond its TTL", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(400*time.Millisecond))
		ctx := hold.Context(context.Background())
		for range 4 {
			time.Sleep(150 * time.Millisecond)
			if err := hold.Renew(context.Background(), registry.WithTTL(400*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			q.refused("foo")
		}
		if err := p.RenewLock(context.Background(), "foo", registry.WithTTL(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(450 * time.Millisecond)
		q.refused("foo")
		if ctx.Err() != nil || !hold.Held() {
			t.Errorf("the context ended (%v) although the lease was renewed", context.Cause(ctx))
		}
		p.unlock(hold, nil)
	}},
	{"RenewNeverShortens", "a renewal with a shorter TTL leaves the lease as it is", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		if err := hold.Renew(context.Background(), registry.WithTTL(100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if left := hold.Remaining(); left < 5*time.Second {
			t.Errorf("remaining %v", left)
		}
		time.Sleep(150 * time.Millisecond)
		q.refused("foo")
		p.unlock(hold, nil)
	}},
	{"RenewRacesUnlock", "a renewal that an Unlock overtakes is no loss", func(t *testing.T, b Backend) {
		var told atomic.Int64
		p := start(t, b, "a", registry.WithOnLost(func(*registry.LostError) { told.Add(1) }))
		hold := p.lock("foo")
		asking := make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "renew" {
				close(asking)
				time.Sleep(50 * time.Millisecond)
			}
			return do()
		})
		renewed := goes(func() error { return hold.Renew(context.Background()) })
		ends(t, "the renewal", asking)
		p.unlock(hold, nil)
		if err := ends(t, "the renewal", renewed); err != nil && !errors.Is(err, registry.ErrNotHeld) {
			t.Errorf("renew = %v, want ErrNotHeld", err)
		}
		time.Sleep(10 * time.Millisecond)
		if n := told.Load(); n != 0 {
			t.Errorf("OnLost was called %d times", n)
		}
	}},
	{"RenewNotHeld", "14: renewing a key that this registry does not hold fails with ErrNotHeld", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := q.lock("foo")
		p.Obtain("foo")
		for _, key := range []string{"foo", "bar"} {
			if err := p.RenewLock(context.Background(), key); !errors.Is(err, registry.ErrNotHeld) {
				t.Errorf("RenewLock(%q) = %v, want ErrNotHeld", key, err)
			}
		}
		if err := q.RenewLock(context.Background(), "foo", registry.WithTTL(0)); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("RenewLock with TTL 0 = %v, want ErrInvalid", err)
		}
		q.unlock(hold, nil)
	}},
	{"NeverRevived", "a lease that was reported lost is never renewed, taken or not", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo", registry.WithTTL(100*time.Millisecond))
		time.Sleep(150 * time.Millisecond)
		for range 2 {
			if err := hold.Renew(context.Background()); !errors.Is(err, registry.ErrLockLost) || hold.Held() {
				t.Errorf("renew = %v, held %v", err, hold.Held())
			}
		}
		p.unlock(hold, registry.ErrLockLost)
	}},
	{"Nested", "5, 6, 30: a context made from a hold re-enters the lock; only the last unlock gives it back", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		err := p.ExecuteLocked(context.Background(), "foo", func(ctx context.Context) error {
			inner, err := p.Obtain("foo").LockContext(ctx)
			if err != nil {
				return err
			}
			innermost, err := p.Obtain("foo").TryLockContext(inner.Context(ctx))
			if err != nil {
				return err
			}
			p.unlock(inner, nil)
			q.refused("foo")
			p.unlock(innermost, nil)
			p.unlock(innermost, registry.ErrNotHeld)
			q.refused("foo")
			return p.ExecuteLocked(ctx, "foo", func(context.Context) error { return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		q.unlock(q.lock("foo"), nil)
		p.unlock(p.lock("foo"), nil)
		p.noRows(0)
	}},
	{"NestedOutlives", "a nested hold keeps the lease when the outer one goes first", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		outer := p.lock("foo")
		inner, err := p.Obtain("foo").LockContext(outer.Context(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(outer, nil)
		if outer.Held() || !inner.Held() {
			t.Errorf("outer held %v, inner held %v", outer.Held(), inner.Held())
		}
		q.refused("foo")
		p.unlock(inner, nil)
		p.noRows(0)
	}},
	{"ReleasedContext", "the context of an unlocked hold joins nothing, even while a nested hold goes on", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		outer := p.lock("foo")
		ctx := outer.Context(context.Background())
		inner, err := p.Obtain("foo").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p.unlock(outer, nil)
		if _, err := p.Obtain("foo").TryLockContext(context.WithoutCancel(ctx)); !errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("err = %v, want ErrNotAcquired", err)
		}
		p.unlock(inner, nil)
		p.unlock(p.lock("foo"), nil)
	}},
	{"NestedTTL", "a nested call never shortens the lease, and lengthens it to the TTL it names", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		outer := p.lock("foo", registry.WithTTL(5*time.Second))
		ctx := outer.Context(context.Background())
		for _, c := range []struct{ ttl, atLeast time.Duration }{{time.Second, 3 * time.Second}, {30 * time.Second, 25 * time.Second}} {
			inner, err := p.Obtain("foo").LockContext(ctx, registry.WithTTL(c.ttl))
			if err != nil {
				t.Fatal(err)
			}
			if inner.Remaining() < c.atLeast || outer.Remaining() < c.atLeast {
				t.Errorf("TTL %v: remaining %v and %v, want at least %v", c.ttl, inner.Remaining(), outer.Remaining(), c.atLeast)
			}
			p.unlock(inner, nil)
		}
		p.unlock(outer, nil)
	}},
	{"NestedOtherKey", "re-entrance is for the same key of the same registry only", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		ctx := hold.Context(context.Background())
		other, err := p.Obtain("bar").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Obtain("foo").TryLockContext(ctx); !errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("another registry joined the hold: %v", err)
		}
		p.unlock(hold, nil)
		if !other.Held() {
			t.Error("unlocking foo took bar")
		}
		p.unlock(other, nil)
	}},
	{"NestedAfterLoss", "7: nesting into a lost hold fails with ErrLockLost instead of waiting for itself", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(100*time.Millisecond))
		ctx := hold.Context(context.Background())
		next := q.lock("foo")
		if _, err := p.Obtain("foo").LockContext(ctx); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("nested lock = %v, want ErrLockLost", err)
		}
		p.unlock(hold, registry.ErrLockLost)
		q.unlock(next, nil)

		hold = p.lock("bar", registry.WithTTL(100*time.Millisecond))
		ctx = hold.Context(context.Background())
		time.Sleep(150 * time.Millisecond) // and nobody takes it
		if _, err := p.Obtain("bar").TryLockContext(ctx); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("nested lock = %v, want ErrLockLost", err)
		}
		p.unlock(hold, registry.ErrLockLost)
	}},
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
		}, registry.WithTTL(100*time.Millisecond))
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
	{"UnlockCancelled", "Unlock under a cancelled context gives the lock back", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		ctx, cancel := context.WithCancel(context.Background())
		hold, err := p.Obtain("foo").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if !hold.Held() {
			t.Error("the end of the lock call's context ended the hold")
		}
		if err := hold.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		p.noRows(0)
		q.unlock(q.lock("foo"), nil)
	}},
}
