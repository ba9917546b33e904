package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

func newLocks(t *testing.T, db repository.Pool, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	quiet := registry.WithOnLost(func(*registry.LostError) {}) // losing locks is what happens here
	locks, err := registry.New(repo, append([]registry.Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // no patience with holds that a test has left
		locks.Close(now)
		repo.Close()
	})
	return locks
}

func lock(t *testing.T, locks *registry.JdbcLockRegistry, key string, opts ...registry.LockOption) *registry.Hold {
	t.Helper()
	hold, err := locks.Obtain(key).LockContext(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// endLeases makes the leases of db end at once, as a clock that is set forward
// does: the holders believe in them on.
func endLeases(t *testing.T, db *testdb.DB) {
	t.Helper()
	past := "'2001-01-01'"
	if db.Vendor == vendor.SQLite {
		past = "0"
	}
	exec(t, db, "UPDATE INT_LOCK SET EXPIRED_AFTER = "+past)
}

// eachAssert runs f on every vendor and under every isolation level.
func eachAssert(t *testing.T, f func(t *testing.T, db *testdb.DB, level sql.IsolationLevel)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		createTables(t, db)
		for _, level := range levelsOf(db.Vendor) {
			t.Run(level.String(), func(t *testing.T) {
				exec(t, db, "DELETE FROM INT_LOCK")
				exec(t, db, "UPDATE account SET balance = 0")
				f(t, db, level)
			})
		}
	})
}

// TestAssertHeld: what the transaction has written is committed while the lease
// stands, and not after anything else has happened to it.
func TestAssertHeld(t *testing.T) {
	eachAssert(t, func(t *testing.T, db *testdb.DB, level sql.IsolationLevel) {
		mark := db.LogMark(t)
		locks, other := newLocks(t, db.DB), newLocks(t, db.DB)
		for i, c := range []struct {
			name string
			what func(hold *registry.Hold) error
			want error
		}{
			{"stands", func(*registry.Hold) error { return nil }, nil},
			{"expired", func(*registry.Hold) error { endLeases(t, db); return nil }, registry.ErrLockLost},
			{"taken", func(hold *registry.Hold) error { endLeases(t, db); lock(t, other, hold.Key()); return nil }, registry.ErrLockLost},
			{"taken and released", func(hold *registry.Hold) error {
				endLeases(t, db)
				return lock(t, other, hold.Key()).Unlock(t.Context())
			}, registry.ErrLockLost},
			{"deleted", func(*registry.Hold) error { exec(t, db, "DELETE FROM INT_LOCK"); return nil }, registry.ErrLockLost},
			{"unlocked", func(hold *registry.Hold) error { return hold.Unlock(t.Context()) }, registry.ErrNotHeld},
			{"unlocked and locked again", func(hold *registry.Hold) error {
				err := hold.Unlock(t.Context())
				lock(t, locks, hold.Key())
				return err
			}, registry.ErrNotHeld},
		} {
			for _, first := range []bool{true, false} { // where in the transaction
				exec(t, db, "UPDATE account SET balance = 0")
				hold := lock(t, locks, fmt.Sprint("job", i, first))
				if err := c.what(hold); err != nil {
					t.Fatal(err)
				}
				_, err := inTx(t.Context(), db.DB, level, func(tx *sql.Tx) error {
					write := func() error {
						_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 1 WHERE id = 1")
						return err
					}
					if first {
						return errors.Join(fencing.AssertHeld(t.Context(), tx, hold), write())
					}
					return errors.Join(write(), fencing.AssertHeld(t.Context(), tx, hold))
				})
				written := int64(0)
				if c.want == nil {
					written = 1
				}
				gone := c.name == "deleted" || c.name == "taken and released"
				if gone && db.Vendor == vendor.Postgres && level != sql.LevelReadCommitted {
					// A snapshot without the row may be too old or new enough.
					if !errors.Is(err, repository.ErrTransient) || number(t, db, "SELECT balance FROM account WHERE id = 1") != 0 {
						t.Errorf("%s, first %v: %v, want an error that asks for another run", c.name, first, err)
					}
					continue
				}
				if !errors.Is(err, c.want) || number(t, db, "SELECT balance FROM account WHERE id = 1") != written {
					t.Errorf("%s, first %v: %v, balance %d; want %v", c.name, first, err, number(t, db, "SELECT balance FROM account WHERE id = 1"), c.want)
				}
				if hold.Held() != (c.want == nil) {
					t.Errorf("%s, first %v: held %v afterwards", c.name, first, hold.Held())
				}
				if c.want != registry.ErrLockLost {
					continue
				}
				// What is lost is refused again without a question.
				ended := begin(t, db, level)
				ended.Rollback()
				if err := fencing.AssertHeld(t.Context(), ended, hold); !errors.Is(err, registry.ErrLockLost) || errors.Is(err, sql.ErrTxDone) {
					t.Errorf("%s, again: %v", c.name, err)
				}
			}
		}
		silent(t, mark)
	})
}

// TestContenderWaits: a transaction that has asserted stays open for longer
// than the lease lasts. The hold says so, nobody is granted the lock before the
// transaction ends, it commits, and the next holder sees what it wrote.
func TestContenderWaits(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commits ", commits), func(t *testing.T) {
			t.Parallel()
			eachAssert(t, func(t *testing.T, db *testdb.DB, level sql.IsolationLevel) {
				const ttl = time.Second
				mark := db.LogMark(t)
				locks, other := newLocks(t, db.DB), newLocks(t, db.DB)
				hold := lock(t, locks, "job", registry.WithTTL(ttl))
				tx := begin(t, db, level)
				if err := fencing.AssertHeld(t.Context(), tx, hold); err != nil {
					t.Fatal(err)
				}
				var seen int64
				granted := make(chan error, 1)
				go func() {
					next, err := other.Obtain("job").LockContext(t.Context())
					if err == nil {
						err = db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 1").Scan(&seen)
						err = errors.Join(err, next.Unlock(t.Context()))
					}
					granted <- err
				}()
				time.Sleep(2 * ttl)
				blocked(t, granted)
				if hold.Held() {
					t.Error("the hold believes in its lease after twice its TTL")
				}
				exec(t, tx, "UPDATE account SET balance = 1 WHERE id = 1")
				end, want := tx.Rollback, int64(0)
				if commits {
					end, want = tx.Commit, 1
				}
				if err := end(); err != nil {
					t.Errorf("the end of the transaction: %v", err)
				}
				if err := answerOf(t, granted); err != nil {
					t.Errorf("the next holder: %v", err)
				}
				if seen != want {
					t.Errorf("the next holder reads %d, want %d", seen, want)
				}
				if err := hold.Unlock(t.Context()); !errors.Is(err, registry.ErrLockLost) {
					t.Errorf("unlock of the expired hold: %v", err)
				}
				silent(t, mark)
			})
		})
	}
}

// TestAssertWaitsNoLongerThanTheLease: somebody has the row locked and keeps it.
func TestAssertWaitsNoLongerThanTheLease(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		createTables(t, db)
		hold := lock(t, newLocks(t, db.DB), "job", registry.WithTTL(2*time.Second))
		first := begin(t, db, sql.LevelDefault)
		if err := fencing.AssertHeld(t.Context(), first, hold); err != nil {
			t.Fatal(err)
		}
		second := begin(t, db, sql.LevelDefault)
		start := time.Now()
		if err := fencing.AssertHeld(context.Background(), second, hold); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("%v, want ErrLockLost", err)
		}
		took := time.Since(start)
		t.Logf("it waited for %v", took)
		if took > 8*time.Second {
			t.Errorf("it waited for %v, the lease was one of two seconds", took)
		}
		if err := first.Commit(); err != nil {
			t.Errorf("the first: %v", err)
		}
	})
}

// TestPoolOfOne: with the transaction open there is no other connection, and
// AssertHeld needs none.
func TestPoolOfOne(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		db.SetMaxOpenConns(1)
		hold := lock(t, newLocks(t, db.DB), "job")
		_, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error { return fencing.AssertHeld(t.Context(), tx, hold) })
		if err := errors.Join(err, hold.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestAssertInputs(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	createTables(t, db)
	hold := lock(t, newLocks(t, db.DB), "job")
	tx := begin(t, db, sql.LevelDefault)
	memory, err := repository.NewMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := registry.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	inMemory := lock(t, locks, "job")
	for what, err := range map[string]error{
		"no transaction":                fencing.AssertHeld(t.Context(), nil, hold),
		"no hold":                       fencing.AssertHeld(t.Context(), tx, nil),
		"a lock that is in no database": fencing.AssertHeld(t.Context(), tx, inMemory),
	} {
		if !errors.Is(err, fencing.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if !inMemory.Held() || !hold.Held() {
		t.Error("a mistake made the lock lost")
	}
	elsewhere := testdb.Open(t, vendor.SQLite)
	createTables(t, elsewhere)
	err = fencing.AssertHeld(t.Context(), begin(t, elsewhere, sql.LevelDefault), hold)
	if !errors.Is(err, registry.ErrLockLost) || !strings.Contains(err.Error(), "is it in the database that the locks are in?") {
		t.Errorf("a transaction in another database: %v", err)
	}
}
