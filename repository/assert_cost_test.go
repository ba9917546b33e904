package repository

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// TestAssertIsOneRoundTrip, the first time on a connection too, with the
// drivers' defaults.
func TestAssertIsOneRoundTrip(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			r := open(t, db)
			lease := take(t, r, "k")
			proxy := db.Proxy(t)
			through := db.Through(t, proxy)
			through.SetMaxOpenConns(1)
			for range 2 {
				tx, err := through.Begin()
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				proxy.ResetRoundTrips()
				got, err := r.AssertHeld(t.Context(), tx, lease)
				if err != nil || got.State != LeaseStands {
					t.Fatal(got, err)
				}
				if trips := proxy.RoundTrips(); trips != 1 {
					t.Errorf("%d round trips, want 1", trips)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestAssertLocksOneRow, and not its neighbours, also in a table that has the
// database's own character set, as Spring's script makes it.
func TestAssertLocksOneRow(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			r := open(t, db)
			if name != vendor.Postgres {
				if _, err := db.Exec("ALTER TABLE INT_LOCK CONVERT TO CHARACTER SET utf8mb4"); err != nil {
					t.Fatal(err)
				}
			}
			const rows = 100
			var lease Lease
			for i := range rows {
				if got := take(t, r, fmt.Sprint("key-", i)); i == rows/2 {
					lease = got
				}
			}
			for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if got, err := r.AssertHeld(t.Context(), tx, lease); err != nil || got.State != LeaseStands {
					t.Fatal(got, err)
				}
				var free int
				if err := db.QueryRow("SELECT COUNT(*) FROM (SELECT LOCK_KEY FROM INT_LOCK FOR UPDATE SKIP LOCKED) AS l").Scan(&free); err != nil {
					t.Fatal(err)
				}
				if free != rows-1 {
					t.Errorf("%v: %d of %d rows are free, want all but one", level, free, rows)
				}
				take(t, r, fmt.Sprint("key-", rows/2, "-", level)) // goes into the gap behind the row
				tx.Rollback()
				if _, err := db.Exec("DELETE FROM INT_LOCK WHERE LOCK_KEY LIKE 'key-50-%'"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestAssertPlan: Postgres, which locks no row in passing, finds its row by the
// primary key.
func TestAssertPlan(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	r := open(t, db)
	if _, err := db.Exec(`INSERT INTO INT_LOCK SELECT md5(i::text), 'DEFAULT', 'x', now(), now() + INTERVAL '1 hour', i FROM generate_series(1, 20000) i`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("ANALYZE INT_LOCK"); err != nil {
		t.Fatal(err)
	}
	var plan string
	if err := db.QueryRow("EXPLAIN (FORMAT JSON) " + r.assertText(take(t, r, "k"))).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plan, "Seq Scan") || !regexp.MustCompile(`(?i)"Index Cond": "[^"]*lock_key[^"]*region`).MatchString(plan) {
		t.Errorf("it does not use the primary key:\n%s", plan)
	}
}
