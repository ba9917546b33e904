package fencing_test

import (
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

var (
	_ fencing.Tx   = (*sql.Tx)(nil)
	_ fencing.Tx   = (*sqlx.Tx)(nil)
	_ fencing.Pool = (*sql.DB)(nil)
	_ fencing.Pool = (*sqlx.DB)(nil)
)

func TestOnlyATransactionIsATx(t *testing.T) {
	for _, no := range []any{(*sql.DB)(nil), (*sql.Conn)(nil), (*sqlx.DB)(nil), (*sqlx.Conn)(nil)} {
		if _, ok := no.(fencing.Tx); ok {
			t.Errorf("%T passes for a transaction", no)
		}
	}
	if _, ok := any((*sql.Conn)(nil)).(fencing.Pool); ok {
		t.Error("a connection passes for a pool")
	}
}

// TestTokensOnlyRise: what passes and what is refused, one transaction after
// the other. On MySQL and MariaDB affected rows are counted in both ways.
func TestTokensOnlyRise(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		run := func(t *testing.T, db *testdb.DB) {
			for name, make := range map[string]func(*testing.T, *testdb.DB) fence{"table": tableFence, "column": columnFence} {
				t.Run(name, func(t *testing.T) {
					createTables(t, db)
					tokensOnlyRise(t, db, make(t, db))
				})
			}
		}
		run(t, db)
		if db.Vendor == vendor.MySQL || db.Vendor == vendor.MariaDB {
			t.Run("clientFoundRows", func(t *testing.T) { run(t, db.With(t, map[string]string{"clientFoundRows": "true"})) })
			t.Run("interpolateParams", func(t *testing.T) { run(t, db.With(t, map[string]string{"interpolateParams": "true"})) })
		}
	})
}

func tokensOnlyRise(t *testing.T, db *testdb.DB, g fence) {
	mark := db.LogMark(t)
	for _, step := range []struct {
		token, highest int64
		commit         bool
	}{
		{5, 0, false}, // rolled back: forgotten
		{1, 1, true},
		{2, 2, true},
		{2, 2, true}, // one holder writes many times
		{2, 2, true},
		{9, 2, false},
		{3, 3, true},
		{2, 3, true}, // refused
		{1, 3, true},
		{3, 3, false},
		{math.MaxInt64 - 1, math.MaxInt64 - 1, true},
		{math.MaxInt64, math.MaxInt64, true}, // beyond what a float keeps apart
		{math.MaxInt64 - 1, math.MaxInt64, true},
	} {
		before := g.highest(t, 1)
		tx := begin(t, db, sql.LevelDefault)
		err := g.check(t.Context(), tx, 1, step.token)
		if step.token < before {
			mustBeStale(t, "a lower token", err, g.name(1), step.token, before)
		} else if err != nil {
			t.Errorf("token %d after %d: %v", step.token, before, err)
		}
		// A refusal leaves the transaction usable, for whoever wants to write
		// down that it happened.
		exec(t, tx, "UPDATE account SET balance = balance + 1 WHERE id = 3")
		if step.commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := g.highest(t, 1); got != step.highest {
			t.Errorf("token %d after %d: the highest is %d, want %d", step.token, before, got, step.highest)
		}
	}
	if got := g.highest(t, 2); got != 0 {
		t.Errorf("another resource has the token %d", got)
	}
	silent(t, mark)
}

// TestTwoChecksInOneTransaction: a holder of two locks, and one that checks
// before each of its writes.
func TestTwoChecksInOneTransaction(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		tx := begin(t, db, sql.LevelDefault)
		for _, c := range []struct {
			resource int
			token    int64
		}{{1, 7}, {2, 3}, {1, 7}, {1, 8}, {2, 3}} {
			if err := g.check(t.Context(), tx, c.resource, c.token); err != nil {
				t.Errorf("resource %d, token %d: %v", c.resource, c.token, err)
			}
		}
		mustBeStale(t, "lower than its own", g.check(t.Context(), tx, 1, 7), g.name(1), 7, 8)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if one, two := g.highest(t, 1), g.highest(t, 2); one != 8 || two != 3 {
			t.Errorf("the highest are %d and %d, want 8 and 3", one, two)
		}
	})
}

// TestNoToken: a writer without a token is refused, whatever is there.
func TestNoToken(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		for _, token := range []int64{0, -1, math.MinInt64} {
			tx := begin(t, db, sql.LevelDefault)
			checked := g.check(t.Context(), tx, 1, token)
			tx.Rollback()
			for _, err := range []error{checked, g.advance(t.Context(), 1, token)} {
				if !errors.Is(err, fencing.ErrInvalid) || errors.Is(err, fencing.ErrStaleToken) ||
					!strings.Contains(err.Error(), "repository.WithTokens()") {
					t.Errorf("token %d: %v, want ErrInvalid about WithTokens", token, err)
				}
			}
		}
		if got := g.highest(t, 1); got != 0 {
			t.Errorf("the highest is %d, want 0", got)
		}
	})
}

// TestAdvanceClosesTheGap: the old holder is refused although the new one has
// not written yet; without Advance it passes.
func TestAdvanceClosesTheGap(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		mark := db.LogMark(t)
		write := func(token int64) error {
			_, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error {
				exec(t, tx, "UPDATE account SET balance = balance + 1 WHERE id = 1") // before the check: no matter
				return g.check(t.Context(), tx, 1, token)
			})
			return err
		}
		if err := write(7); err != nil {
			t.Fatal(err)
		}
		// The lock is granted with token 8.
		if err := write(7); err != nil {
			t.Errorf("in the gap: %v", err)
		}
		if err := g.advance(t.Context(), 1, 8); err != nil {
			t.Fatal(err)
		}
		mustBeStale(t, "after Advance", write(7), g.name(1), 7, 8)
		mustBeStale(t, "Advance of the old holder", g.advance(t.Context(), 1, 7), g.name(1), 7, 8)
		if err := g.advance(t.Context(), 1, 8); err != nil {
			t.Errorf("Advance again: %v", err)
		}
		if got := number(t, db, "SELECT balance FROM account WHERE id = 1"); got != 2 {
			t.Errorf("%d writes, want 2", got)
		}
		if got := g.highest(t, 1); got != 8 {
			t.Errorf("the highest is %d, want 8", got)
		}
		silent(t, mark)
	})
}

// TestAdvanceCommits: also where the connections of the pool do not commit by
// themselves.
func TestAdvanceCommits(t *testing.T) {
	for _, name := range []string{vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			createTables(t, db)
			manual := db.With(t, map[string]string{"autocommit": "0"})
			if err := tableFence(t, manual).advance(t.Context(), 1, 8); err != nil {
				t.Fatal(err)
			}
			if got := tableFence(t, db).highest(t, 1); got != 8 {
				t.Errorf("another connection sees %d, want 8", got)
			}
		})
	}
}

// TestOneConnection: neither Check nor Advance needs a second one.
func TestOneConnection(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, _ fence) {
		one := db.Again(t)
		one.SetMaxOpenConns(1)
		for _, g := range []fence{tableFence(t, one), columnFence(t, one)} {
			if err := g.advance(t.Context(), 1, 8); err != nil {
				t.Fatal(err)
			}
			tx := begin(t, one, sql.LevelDefault)
			if err := g.check(t.Context(), tx, 1, 8); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestNothingIsLeftOnTheConnection: what the caller's transaction must not
// notice: prepared statements, and another LAST_INSERT_ID.
func TestNothingIsLeftOnTheConnection(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		left := ""
		switch db.Vendor {
		case vendor.Postgres:
			left = "SELECT COUNT(*) FROM pg_prepared_statements WHERE name <> ''"
		case vendor.MySQL, vendor.MariaDB:
			exec(t, db, "DROP TABLE IF EXISTS parent")
			exec(t, db, "CREATE TABLE parent (id BIGINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 4711")
			left = "SELECT LAST_INSERT_ID() - 4711"
		case vendor.SQLite:
			exec(t, db, "DROP TABLE IF EXISTS parent")
			exec(t, db, "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
			left = "SELECT last_insert_rowid() - 4711"
		}
		tx := begin(t, db, sql.LevelDefault)
		switch db.Vendor {
		case vendor.MySQL, vendor.MariaDB:
			exec(t, tx, "INSERT INTO parent VALUES ()")
		case vendor.SQLite:
			exec(t, tx, "INSERT INTO parent VALUES (4711)")
		}
		for _, token := range []int64{7, 7, 8, 6} {
			if err := g.check(t.Context(), tx, 1, token); (err != nil) != (token == 6) {
				t.Fatal(err)
			}
			if got := number(t, tx, left); got != 0 {
				t.Errorf("token %d: %s gives %d, want 0", token, left, got)
			}
		}
	})
}
