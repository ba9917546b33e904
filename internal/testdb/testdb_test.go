package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func run(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(testContext(t), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func text(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var s string
	if err := db.QueryRowContext(testContext(t), query).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

func TestEachIsWhatItSays(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		got, err := vendor.Detect(testContext(t), db)
		if err != nil {
			t.Fatal(err)
		}
		if got != db.Vendor {
			t.Errorf("the server of %s says it is %s", db.Vendor, got)
		}
		if name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]; name != db.Vendor {
			t.Errorf("the subtest of %s is called %s", db.Vendor, name)
		}
	})
}

func TestFreshAndDisjoint(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		other := Open(t, db.Vendor)
		for i, d := range []*DB{db, other} {
			// Fails if the name is taken: neither database has a table, and
			// neither sees the other's.
			run(t, d.DB, "CREATE TABLE same_name (n INTEGER)")
			run(t, d.DB, fmt.Sprintf("INSERT INTO same_name VALUES (%d)", i))
		}
		if n := text(t, db.Again(t).DB, "SELECT COUNT(*) FROM same_name"); n != "1" {
			t.Errorf("a second pool sees %s rows, want the 1 of its own database", n)
		}
	})
}

func TestDropsWhatItMade(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		if db.Vendor == vendor.SQLite {
			t.Skip("the file goes with t.TempDir")
		}
		var name string
		t.Run("inner", func(t *testing.T) {
			inner := Open(t, db.Vendor)
			name = inner.Name
			run(t, inner.DB, "CREATE TABLE kept (n INTEGER)")
			// A transaction that nobody ends must not hang the clean-up.
			stray, err := sql.Open(inner.Driver, inner.DSN)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := stray.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO kept VALUES (1)"); err != nil {
				t.Fatal(err)
			}
		})
		if n := text(t, db.DB, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+name+"'"); n != "0" {
			t.Errorf("database %s is still there", name)
		}
	})
}

func TestWithTakesEffect(t *testing.T) {
	cases := map[string][]struct{ key, value, query, want string }{
		vendor.Postgres: {
			{"TimeZone", "America/New_York", "SHOW TimeZone", "America/New_York"},
			{"default_transaction_isolation", "serializable", "SHOW transaction_isolation", "serializable"},
		},
		vendor.MySQL: {
			{"transaction_isolation", "'SERIALIZABLE'", "SELECT @@transaction_isolation", "SERIALIZABLE"},
			{"time_zone", "'+05:00'", "SELECT @@session.time_zone", "+05:00"},
		},
		vendor.MariaDB: {
			{"tx_isolation", "'SERIALIZABLE'", "SELECT @@tx_isolation", "SERIALIZABLE"},
			{"time_zone", "'+05:00'", "SELECT @@session.time_zone", "+05:00"},
		},
		vendor.SQLite: {
			{"_pragma", "busy_timeout(7)", "PRAGMA busy_timeout", "7"},
			{"_pragma", "cache_size(77)", "PRAGMA journal_mode", "wal"}, // kept
		},
	}
	Each(t, func(t *testing.T, db *DB) {
		run(t, db.DB, "CREATE TABLE here (n INTEGER)")
		for _, c := range cases[db.Vendor] {
			with := db.With(t, map[string]string{c.key: c.value})
			if got := text(t, with.DB, c.query); got != c.want {
				t.Errorf("with %s=%s, %s says %q, want %q", c.key, c.value, c.query, got, c.want)
			}
			text(t, with.DB, "SELECT COUNT(*) FROM here") // the same database
		}
	})
}

// clientFoundRows is the parameter whose effect is easiest to get wrong: the
// same UPDATE counts its row or does not.
func TestWithClientFoundRows(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		if db.Driver != "mysql" {
			t.Skip("a parameter of go-sql-driver")
		}
		run(t, db.DB, "CREATE TABLE one (n INTEGER)")
		run(t, db.DB, "INSERT INTO one VALUES (1)")
		found := db.With(t, map[string]string{"clientFoundRows": "true"})
		for pool, want := range map[*DB]int64{db: 0, found: 1} {
			result, err := pool.ExecContext(testContext(t), "UPDATE one SET n = 1")
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := result.RowsAffected(); got != want {
				t.Errorf("%d rows affected, want %d", got, want)
			}
		}
	})
}

func TestDSNSelfContained(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		run(t, db.DB, "CREATE TABLE here (n INTEGER)")
		child, err := sql.Open(db.Driver, db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer child.Close()
		text(t, child, "SELECT COUNT(*) FROM here")
	})
}
