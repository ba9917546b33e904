package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
)

// TestBusyPool: the application keeps the only connection of its pool for three
// times the TTL. A lease of that pool cannot be renewed, and its holder hears of
// it in time, and why; one with a pool of its own lives on.
func TestBusyPool(t *testing.T) {
	const ttl = time.Second
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // it mostly waits
		prepare(t, db)
		own := db.Again(t)
		own.SetMaxOpenConns(1)
		db.SetMaxOpenConns(1)
		shared, dedicated := newRegistry(t, db.DB, registry.WithTTL(ttl)), newRegistry(t, own.DB, registry.WithTTL(ttl))
		lock := func(locks *registry.JdbcLockRegistry, key string) *registry.Hold {
			t.Helper()
			hold, err := locks.Obtain(key).LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return hold
		}
		starves, lives := lock(shared, "shared"), lock(dedicated, "dedicated")
		held := starves.Context(context.Background())

		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		select {
		case <-held.Done():
		case <-time.After(3 * ttl):
			t.Error("the holder has not heard of it")
		}
		if took := time.Since(begin); took > ttl+ttl/2 {
			t.Errorf("the holder heard of it after %v, the TTL is %v", took, ttl)
		}
		var lost *registry.LostError
		if err := context.Cause(held); !errors.As(err, &lost) || lost.Reason != registry.LossUnreachable || !strings.Contains(err.Error(), "*sql.DB of their own") {
			t.Errorf("the cause is %v, want LossUnreachable with advice", err)
		}
		if _, err := shared.Obtain("other").TryLockFor(t.Context(), ttl/2); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("a call without a connection = %v, want ErrUnavailable", err)
		}
		time.Sleep(time.Until(begin.Add(3 * ttl)))
		if !lives.Held() {
			t.Error("the lease with a pool of its own was lost")
		}
		conn.Close()
		if err := starves.Unlock(t.Context()); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("unlock = %v, want ErrLockLost", err)
		}
		if err := lives.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := shared.ExecuteLocked(t.Context(), "other", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond) // for what the last try left
		checkRows(t, own, 0)
	})
}
