package fencing_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
)

// TestOrderOfAssertions: a stale holder and its successor write to the same
// account. If both assert first, or both last, one waits for the other. If the
// orders differ they may deadlock; then the database ends one of the two, and
// the stale one is refused all the same.
func TestOrderOfAssertions(t *testing.T) {
	for _, c := range []struct {
		stale, next when
	}{{first, first}, {last, last}, {last, first}, {first, last}} {
		t.Run("stale asserts "+string(c.stale)+", next "+string(c.next), func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.DB) {
				t.Parallel()
				if db.Vendor == vendor.SQLite {
					t.Skip("SQLite has one writer at a time")
				}
				createTables(t, db)
				mark := db.LogMark(t)
				hold := lock(t, newLocks(t, db.DB), "job", registry.WithTTL(time.Minute))
				endLeases(t, db)
				next := lock(t, newLocks(t, db.DB), "job")
				// run is one holder's transaction: two steps, with a pause in
				// which the other one takes its first.
				run := func(hold *registry.Hold, when when) (tries int, err error) {
					return inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error {
						if when == first {
							if err := fencing.AssertHeld(t.Context(), tx, hold); err != nil {
								return err
							}
							time.Sleep(50 * time.Millisecond)
						}
						if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 1 WHERE id = 1"); err != nil {
							return err
						}
						if when == last {
							time.Sleep(50 * time.Millisecond)
							return fencing.AssertHeld(t.Context(), tx, hold)
						}
						return nil
					})
				}
				ended := make(chan error, 1)
				go func() {
					tries, err := run(hold, c.stale)
					t.Logf("the stale holder: %d tries", tries)
					ended <- err
				}()
				tries, err := run(next, c.next)
				t.Logf("the next holder: %d tries", tries)
				if err != nil {
					t.Errorf("the next holder: %v", err)
				}
				if err := answerOf(t, ended); !errors.Is(err, registry.ErrLockLost) {
					t.Errorf("the stale holder: %v, want ErrLockLost", err)
				}
				if got := number(t, db, "SELECT balance FROM account WHERE id = 1"); got != 1 {
					t.Errorf("the balance is %d, want 1", got)
				}
				if c.stale == c.next {
					silent(t, mark)
				}
			})
		})
	}
}

// TestUnlockBeforeCommit: the lease cannot be given back while a transaction
// has its row locked. Unlock says so after a while, and the row goes later.
func TestUnlockBeforeCommit(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		createTables(t, db)
		locks, other := newLocks(t, db.DB), newLocks(t, db.DB)
		hold := lock(t, locks, "job", registry.WithTTL(2*time.Second))
		tx := begin(t, db, sql.LevelDefault)
		if err := fencing.AssertHeld(t.Context(), tx, hold); err != nil {
			t.Fatal(err)
		}
		exec(t, tx, "UPDATE account SET balance = 1 WHERE id = 1")
		start := time.Now()
		err := hold.Unlock(t.Context())
		t.Logf("after %v: %v", time.Since(start).Round(100*time.Millisecond), err)
		if !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("unlock before the commit: %v, want ErrUnavailable", err)
		}
		if err := fencing.AssertHeld(t.Context(), tx, hold); !errors.Is(err, registry.ErrNotHeld) && !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("an assertion after the unlock: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("commit: %v", err)
		}
		if err := lock(t, other, "job").Unlock(t.Context()); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}
