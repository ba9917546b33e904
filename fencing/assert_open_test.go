package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
)

// TestOpenTransactionAndRenewal: a transaction that has asserted its lock stays
// open, first for half of the TTL and then for two and a half of it. The lease
// of its own hold cannot be renewed meanwhile; those of others are, except on
// SQLite, which has one writer. What is lost is reported in time, and nobody is
// granted anything that its holder still believes in.
func TestOpenTransactionAndRenewal(t *testing.T) {
	const ttl = 2500 * time.Millisecond
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // it mostly waits
		createTables(t, db)
		mark := db.LogMark(t)
		// Both registries have a pool of their own beside the application's.
		locks, rival := newLocks(t, db.Again(t).DB, registry.WithTTL(ttl)), newLocks(t, db.Again(t).DB)
		hold := lock(t, locks, "asserted")
		open := func(last time.Duration) *sql.Tx {
			tx := begin(t, db, sql.LevelDefault) // under no context of the hold's
			if err := fencing.AssertHeld(t.Context(), tx, hold); err != nil {
				t.Fatal(err)
			}
			exec(t, tx, "UPDATE account SET balance = balance + 1 WHERE id = 1")
			time.Sleep(last)
			return tx
		}

		if err := open(ttl / 2).Commit(); err != nil {
			t.Errorf("commit after half of the TTL: %v", err)
		}
		time.Sleep(ttl)
		if !hold.Held() {
			t.Fatalf("the lease was lost by a transaction that took half of its TTL: %v", context.Cause(hold.Context(t.Context())))
		}

		held := hold.Context(context.Background())
		others := map[string]context.Context{}
		for _, key := range []string{"before", "later"} {
			others[key] = lock(t, locks, key).Context(context.Background())
		}
		tx := open(ttl * 5 / 2)
		wantLoss(t, "the asserted hold", held, map[bool]registry.LossReason{false: registry.LossBlocked, true: registry.LossUnreachable}[db.Vendor == vendor.SQLite])
		for key, ctx := range others {
			if db.Vendor == vendor.SQLite {
				wantLoss(t, key, ctx, registry.LossUnreachable)
			} else if ctx.Err() != nil {
				t.Errorf("the lease of %q was lost: %v", key, context.Cause(ctx))
			}
		}
		// The lease has expired, its row is locked: the rival gets neither.
		if next, err := rival.Obtain("asserted").TryLockContext(t.Context()); err == nil {
			t.Error("the lock was granted while the transaction that asserted it is open")
			next.Unlock(t.Context())
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("commit: %v", err)
		}
		next := lock(t, rival, "asserted")
		if n := number(t, db, "SELECT balance FROM account WHERE id = 1"); n != 2 {
			t.Errorf("the next holder reads %d, want 2", n)
		}
		late := begin(t, db, sql.LevelDefault)
		if err := fencing.AssertHeld(t.Context(), late, hold); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("another transaction of the first holder: %v, want ErrLockLost", err)
		}
		late.Rollback()
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		silent(t, mark)
	})
}

func wantLoss(t *testing.T, what string, ctx context.Context, reason registry.LossReason) {
	t.Helper()
	var lost *registry.LostError
	if err := context.Cause(ctx); !errors.As(err, &lost) || lost.Reason != reason {
		t.Errorf("%s: the context's cause is %v, want %q", what, err, reason)
	}
}
