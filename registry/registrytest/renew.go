package registrytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

var renewClauses = []clause{
	{"Renew", "13, 15, 39: renewing keeps the lock beyond its TTL", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(time.Second))
		ctx := hold.Context(context.Background())
		for range 4 {
			time.Sleep(400 * time.Millisecond)
			if err := hold.Renew(context.Background(), registry.WithTTL(time.Second)); err != nil {
				t.Fatal(err)
			}
			q.refused("foo")
		}
		if err := p.RenewLock(context.Background(), "foo", registry.WithTTL(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
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
}
