package fencing_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

func levelsOf(name string) []sql.IsolationLevel {
	switch name {
	case vendor.SQLite: // the driver knows one
		return []sql.IsolationLevel{sql.LevelDefault}
	case vendor.Postgres:
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	}
	return []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// eachLevel runs f under every isolation level, and on MariaDB also under the
// one that refuses to change a row which the snapshot does not show.
func eachLevel(t *testing.T, f func(t *testing.T, db *testdb.DB, g fence, level sql.IsolationLevel)) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		clean := func(t *testing.T) {
			exec(t, db, "DELETE FROM INT_LOCK_FENCE")
			exec(t, db, "UPDATE account SET fence = NULL, balance = 0")
		}
		for _, level := range levelsOf(db.Vendor) {
			t.Run(level.String(), func(t *testing.T) {
				clean(t)
				f(t, db, g, level)
			})
		}
		if db.Vendor == vendor.MariaDB {
			t.Run("innodb_snapshot_isolation", func(t *testing.T) {
				clean(t)
				f(t, db.With(t, map[string]string{"innodb_snapshot_isolation": "1"}), g, sql.LevelRepeatableRead)
			})
		}
	})
}

// TestOldSnapshot: the old holder's transaction has read before the new one
// advanced, and then checks. It must never pass: it is refused, at the latest
// when the transaction is run again because the database asks for that.
func TestOldSnapshot(t *testing.T) {
	for _, seen := range []int64{0, 7} {
		t.Run(fmt.Sprint("seen ", seen), func(t *testing.T) {
			eachLevel(t, func(t *testing.T, db *testdb.DB, g fence, level sql.IsolationLevel) {
				if seen > 0 {
					if err := g.advance(t.Context(), 1, seen); err != nil {
						t.Fatal(err)
					}
				}
				advanced := false
				tries, err := inTx(t.Context(), db.DB, level, func(tx *sql.Tx) error {
					// All there is, but locking no row under MySQL's SERIALIZABLE,
					// where a plain read does.
					number(t, tx, "SELECT COUNT(*) FROM history")
					if level != sql.LevelSerializable {
						number(t, tx, "SELECT COUNT(*) FROM account")
						number(t, tx, "SELECT COUNT(*) FROM INT_LOCK_FENCE")
					}
					if !advanced {
						if err := g.advance(t.Context(), 1, 8); err != nil {
							t.Fatal(err)
						}
						advanced = true
					}
					err := g.check(t.Context(), tx, 1, 7)
					if err == nil {
						t.Error("the old holder passed")
					} else if !errors.Is(err, fencing.ErrStaleToken) && !retryable(err) {
						t.Errorf("%v: neither stale nor the driver's error to try again", err)
					}
					return err
				})
				t.Logf("%d tries", tries)
				mustBeStale(t, "the old holder", err, g.name(1), 7, 8)
				if tries > 2 {
					t.Errorf("%d tries", tries)
				}
				if got := g.highest(t, 1); got != 8 {
					t.Errorf("the highest is %d, want 8", got)
				}
			})
		})
	}
}

// TestCheckFirstSeesThePredecessor: who checks first in its transaction and
// has to wait for the previous holder reads what that one has written.
func TestCheckFirstSeesThePredecessor(t *testing.T) {
	for _, seen := range []int64{0, 6, 7} {
		t.Run(fmt.Sprint("seen ", seen), func(t *testing.T) {
			eachLevel(t, func(t *testing.T, db *testdb.DB, g fence, level sql.IsolationLevel) {
				if seen > 0 {
					if err := g.advance(t.Context(), 1, seen); err != nil {
						t.Fatal(err)
					}
				}
				old := begin(t, db, level)
				if err := g.check(t.Context(), old, 1, 7); err != nil {
					t.Fatal(err)
				}
				exec(t, old, "UPDATE account SET balance = 1 WHERE id = 2")
				var read int64
				answer := make(chan error, 1)
				go func() {
					_, err := inTx(t.Context(), db.DB, level, func(tx *sql.Tx) error {
						if err := g.check(t.Context(), tx, 1, 8); err != nil {
							return err
						}
						return tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 2").Scan(&read)
					})
					answer <- err
				}()
				blocked(t, answer)
				if err := old.Commit(); err != nil {
					t.Fatal(err)
				}
				if err := answerOf(t, answer); err != nil {
					t.Errorf("the new holder: %v", err)
				} else if read != 1 {
					t.Errorf("the new holder reads %d, but its predecessor had written 1", read)
				}
			})
		})
	}
}
