package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// servers runs f on the databases that are reached over a network.
func servers(t *testing.T, f func(t *testing.T, db *testdb.DB)) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			prepare(t, db)
			f(t, db)
		})
	}
}

// free waits until key can be taken by another registry.
func free(t *testing.T, locks *registry.JdbcLockRegistry, key string, within time.Duration) {
	t.Helper()
	start := time.Now()
	hold, err := locks.Obtain(key).TryLockFor(t.Context(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > within {
		t.Errorf("it was free after %v, want within %v", took, within)
	}
	if err := hold.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestUnlockReplyLost: the server has deleted the row, and the connection ends
// before it can say so. That is no lost lock.
func TestUnlockReplyLost(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		proxy := db.Proxy(t)
		through := db.Through(t, proxy)
		through.SetMaxOpenConns(1)
		locks := newRegistry(t, through.DB)
		for range 5 {
			hold, err := locks.Obtain("foo").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// The statement is prepared on the connection: the next reply is its own.
			other, err := locks.Obtain("bar").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			proxy.LoseReply(1)
			if err := hold.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			proxy.Heal()
			checkRows(t, db, 0)
		}
	})
}

// TestAcquireReplyLost: the server has granted the lock and cannot say so. A
// try reports that, and the row is gone soon; a wait gets the lock.
func TestAcquireReplyLost(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		proxy := db.Proxy(t)
		through := db.Through(t, proxy)
		through.SetMaxOpenConns(1)
		locks, others := newRegistry(t, through.DB), newRegistry(t, db.DB)
		use := func() {
			t.Helper()
			if err := locks.ExecuteLocked(t.Context(), "foo", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		use()
		proxy.LoseReply(1)
		hold, err := locks.Obtain("foo").TryLockContext(t.Context())
		if err == nil { // the driver ran it twice, and both times it was ours
			if err := hold.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("try = %v, want ErrUnavailable", err)
		}
		free(t, others, "foo", 2*time.Second)
		use()
		proxy.LoseReply(1)
		use()
		checkRows(t, db, 0)
	})
}

// TestGhost: an acquire waits at the server for a row that somebody's
// transaction has locked, and its caller leaves. When the row comes free the
// server may still grant it to nobody; it is taken back.
func TestGhost(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		locks, others := newRegistry(t, db.DB), newRegistry(t, db.Again(t).DB)
		for range 3 {
			if _, err := db.Exec("DELETE FROM INT_LOCK"); err != nil {
				t.Fatal(err)
			}
			hold, err := others.Obtain("foo").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("UPDATE INT_LOCK SET EXPIRED_AFTER = '2001-01-01'"); err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE INT_LOCK SET HOLDER = 'somebody'"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			start := time.Now()
			_, err = locks.Obtain("foo").LockContext(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 400*time.Millisecond {
				t.Errorf("lock = %v after %v", err, time.Since(start))
			}
			cancel()
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			hold.Unlock(t.Context())
			free(t, others, "foo", 2*time.Second)
		}
	})
}

// TestBlackHole: the network swallows everything. Calls come back in time all
// the same, and the registry works when it is over.
func TestBlackHole(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		proxy := db.Proxy(t)
		locks := newRegistry(t, db.Through(t, proxy).DB, registry.WithTTL(2*time.Second))
		hold, err := locks.Obtain("foo").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		watched := hold.Context(t.Context())
		granted := time.Now()
		proxy.BlackHole()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := locks.Obtain("bar").LockContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lock = %v", err)
		}
		if took := time.Since(start); took > 600*time.Millisecond {
			t.Errorf("the call came back after %v, its context had 300ms", took)
		}
		select {
		case <-watched.Done():
		case <-time.After(3 * time.Second):
			t.Error("the hold's context did not end")
		}
		if took := time.Since(granted); took > 2*time.Second || hold.Held() {
			t.Errorf("the hold's context ended after %v, the TTL is 2s; held: %v", took, hold.Held())
		}
		start = time.Now()
		if err := hold.Unlock(t.Context()); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("unlock = %v, want ErrLockLost", err)
		}
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("unlock took %v", took)
		}
		proxy.Heal()
		proxy.Cut() // the swallowed bytes are lost: the connections are of no use
		free(t, locks, "foo", 10*time.Second)
	})
}

// TestCutConnections: every connection ends between two calls, as in a restart
// or a failover. No caller sees an error.
func TestCutConnections(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		proxy := db.Proxy(t)
		locks := newRegistry(t, db.Through(t, proxy).DB)
		for i := range 20 {
			hold, err := locks.Obtain("foo").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				proxy.Reset()
			} else {
				proxy.Cut()
			}
			if err := hold.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			proxy.Cut()
		}
		checkRows(t, db, 0)
	})
}

// TestTableGainsColumn: the table is altered under live prepared statements.
func TestTableGainsColumn(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db)
		locks := newRegistry(t, db.DB)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := locks.ExecuteLocked(context.Background(), fmt.Sprint("key-", g%2), func(context.Context) error { return nil }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range 5 {
			time.Sleep(50 * time.Millisecond)
			if err := eventually(func() error {
				_, err := db.Exec(fmt.Sprintf("ALTER TABLE INT_LOCK ADD COLUMN EXTRA_%d VARCHAR(10)", i))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		wg.Wait()
	})
}

// TestStrictIsolation: the server's default isolation makes statements fail
// with serialization errors. Callers see none of them.
func TestStrictIsolation(t *testing.T) {
	params := map[string]map[string]string{
		vendor.Postgres: {"default_transaction_isolation": "serializable"},
		vendor.MySQL:    {"transaction_isolation": "'SERIALIZABLE'"},
		vendor.MariaDB:  {"tx_isolation": "'SERIALIZABLE'"},
	}
	servers(t, func(t *testing.T, db *testdb.DB) {
		pool := db.With(t, params[db.Vendor])
		var wg sync.WaitGroup
		for g := range 8 {
			locks := newRegistry(t, pool.DB, registry.WithIdleBetweenTries(2*time.Millisecond))
			wg.Go(func() {
				for i := range 60 {
					key := fmt.Sprint("key-", (g+i)%4)
					err := locks.ExecuteLocked(context.Background(), key, func(context.Context) error { return nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		checkRows(t, db, 0)
	})
}

// TestPoolOfOne: one connection is enough for any number of goroutines, also
// while somebody else has it for a while.
func TestPoolOfOne(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db)
		db.SetMaxOpenConns(1)
		locks := newRegistry(t, db.DB)
		hold, err := locks.Obtain("held").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range 10 {
			wg.Go(func() {
				if err := locks.ExecuteLocked(context.Background(), fmt.Sprint("key-", g%3), func(ctx context.Context) error {
					return locks.ExecuteLocked(ctx, fmt.Sprint("inner-", g), func(context.Context) error { return nil })
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()

		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := locks.Obtain("bar").LockContext(ctx); !errors.Is(err, registry.ErrNotAcquired) {
			t.Errorf("lock without a connection = %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		time.AfterFunc(300*time.Millisecond, func() { conn.Close() })
		if err := hold.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		free(t, locks, "bar", 5*time.Second)
	})
}

// TestClosedPool: the application closed its pool too early.
func TestClosedPool(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db)
		pool := db.Again(t)
		locks := newRegistry(t, pool.DB)
		hold, err := locks.Obtain("foo").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pool.Close()
		for name, err := range map[string]error{
			"unlock": hold.Unlock(t.Context()),
			"lock":   func() error { _, err := locks.Obtain("bar").LockContext(t.Context()); return err }(),
		} {
			if err == nil || errors.Is(err, registry.ErrNotAcquired) || errors.Is(err, registry.ErrLockLost) || errors.Is(err, repository.ErrTransient) {
				t.Errorf("%s = %v, want that the pool is closed", name, err)
			}
		}
	})
}
