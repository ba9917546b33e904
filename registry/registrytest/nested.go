package registrytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

var nestedClauses = []clause{
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
}
