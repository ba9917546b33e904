package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

var (
	_ schema.DB = (*sql.DB)(nil)
	_ schema.DB = (*sqlx.DB)(nil)
	_ schema.DB = (*sql.Conn)(nil)
	_ schema.DB = (*sql.Tx)(nil)
)

func TestApplyTwiceThenDropTwice(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		mark := db.LogMark(t)
		db.SetMaxOpenConns(1) // nothing may need a second connection
		if err := schema.Check(ctx, db, "INT_"); !errors.Is(err, schema.ErrMissing) || !strings.Contains(err.Error(), "schema/"+db.Vendor+".sql") {
			t.Errorf("Check without a table: %v; want ErrMissing that names the script", err)
		}
		for range 2 {
			if err := schema.Apply(ctx, db, "INT_"); err != nil {
				t.Fatalf("Apply: %v", err)
			}
			exec(t, db, spring(db.Vendor, "DELETE FROM INT_LOCK"))
		}
		if err := schema.Check(ctx, db, "INT_"); err != nil {
			t.Errorf("Check: %v", err)
		}
		for range 2 {
			if err := schema.Drop(ctx, db, "INT_"); err != nil {
				t.Fatalf("Drop: %v", err)
			}
			if err := schema.Check(ctx, db, "INT_"); !errors.Is(err, schema.ErrMissing) {
				t.Errorf("Check after Drop: %v; want ErrMissing", err)
			}
			if left := objects(t, db); len(left) > 0 {
				t.Errorf("Drop left %q", left)
			}
		}
		for _, line := range mark.NewErrors(t) {
			t.Errorf("the server logged an error: %s", line)
		}
	})
}

func TestScriptsRunAsTheyAre(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		for _, render := range []func(string, string) (string, error){schema.Script, schema.Script, schema.DropScript, schema.DropScript} {
			text, err := render(db.Vendor, "INT_")
			if err != nil {
				t.Fatal(err)
			}
			exec(t, db, schema.Statements(text)...)
		}
	})
}

func TestConcurrentAppliesAreHarmless(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		mark := db.LogMark(t)
		var pools []*testdb.DB
		for range 8 {
			pool := db.Again(t)
			if db.Vendor == vendor.SQLite { // nothing that waits for a lock for us
				pool = db.With(t, map[string]string{"_pragma": "busy_timeout(0)"})
			}
			pools = append(pools, pool)
		}
		for round := range 5 {
			prefix := fmt.Sprintf("R%d_", round)
			start := make(chan struct{})
			var wg sync.WaitGroup
			for _, pool := range pools {
				wg.Go(func() {
					<-start
					if err := schema.Apply(t.Context(), pool, prefix); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			close(start)
			wg.Wait()
			if round%2 == 0 { // an older release's table is added to as safely
				removeCompanions(t, db, prefix)
				start = make(chan struct{})
				for _, pool := range pools {
					wg.Go(func() {
						<-start
						if err := schema.Apply(t.Context(), pool, prefix); err != nil {
							t.Errorf("round %d, again: %v", round, err)
						}
					})
				}
				close(start)
				wg.Wait()
			}
		}
		for _, line := range mark.NewErrors(t) {
			t.Errorf("the server logged an error: %s", line)
		}
	})
}

func TestApplyWaitsOutABusySQLite(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	impatient := db.With(t, map[string]string{"_pragma": "busy_timeout(0)"})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := schema.Apply(short, impatient, "INT_"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("Apply until its deadline: %v; want the deadline and the reason", err)
	}
	done := make(chan error)
	go func() { done <- schema.Apply(t.Context(), impatient, "INT_") }()
	time.Sleep(50 * time.Millisecond) // so that it meets the lock at least once
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Apply after the lock was gone: %v", err)
	}
}

func TestPrefixWithASchemaPart(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		part := map[string]string{vendor.Postgres: "Sales", vendor.SQLite: "main"}[db.Vendor]
		switch {
		case db.Vendor == vendor.Postgres:
			exec(t, db, "CREATE SCHEMA Sales")
		case part == "":
			part = db.Name
		}
		prefix := part + ".App_"
		if err := schema.Apply(ctx, db, prefix); err != nil {
			t.Fatalf("Apply: %v", err)
		}
		if err := schema.Check(ctx, db, prefix); err != nil {
			t.Errorf("Check: %v", err)
		}
		exec(t, db, strings.ReplaceAll(spring(db.Vendor, springInsert), "INT_LOCK", prefix+"LOCK"))
		err := schema.Check(ctx, db, "App_")
		if db.Vendor == vendor.Postgres { // not on the search_path
			if !errors.Is(err, schema.ErrMissing) || !strings.Contains(err.Error(), "sales.app_lock") {
				t.Errorf("Check without the schema part: %v; want ErrMissing that says where the table is", err)
			}
		} else if err != nil {
			t.Errorf("Check without the schema part: %v", err)
		}
		if err := schema.Drop(ctx, db, prefix); err != nil {
			t.Errorf("Drop: %v", err)
		}
		if err := schema.Check(ctx, db, prefix); !errors.Is(err, schema.ErrMissing) {
			t.Errorf("Check after Drop: %v; want ErrMissing", err)
		}
		if db.Vendor != vendor.SQLite {
			if err := schema.Apply(ctx, db, "nowhere_to_be_found.INT_"); err == nil || !strings.Contains(err.Error(), "apply table nowhere_to_be_found.INT_LOCK") {
				t.Errorf("Apply into a schema that does not exist: %v; want an error with operation and table", err)
			}
		}
	})
}

// A second table in the first schema of the search_path would hide the one in
// use from this service, and not from others.
func TestApplyFindsATableInALaterSchema(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	exec(t, db, "CREATE SCHEMA one", "CREATE SCHEMA two")
	if err := schema.Apply(t.Context(), db, "two.INT_"); err != nil {
		t.Fatal(err)
	}
	both := db.With(t, map[string]string{"search_path": "one,two"})
	if err := schema.Apply(t.Context(), both, "INT_"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), db, "one.INT_"); !errors.Is(err, schema.ErrMissing) {
		t.Errorf("Check(one.INT_): %v; want ErrMissing: the table in two is the one", err)
	}
}

func TestNamesInAnotherCase(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		if err := schema.Apply(ctx, db, "int_"); err != nil {
			t.Fatal(err)
		}
		err := schema.Check(ctx, db, "INT_")
		folds := db.Vendor == vendor.Postgres || db.Vendor == vendor.SQLite
		if !folds {
			var setting int
			if err := db.QueryRowContext(ctx, "SELECT @@lower_case_table_names").Scan(&setting); err != nil {
				t.Fatal(err)
			}
			folds = setting != 0
		}
		if folds && err != nil {
			t.Errorf("Check(INT_) of int_LOCK: %v; want nil, as the server folds names", err)
		}
		if !folds && !errors.Is(err, schema.ErrMissing) {
			t.Errorf("Check(INT_) of int_LOCK: %v; want ErrMissing, as the server tells them apart", err)
		}
		if folds {
			return
		}
		// Both at once: each check must see its own.
		exec(t, db, "CREATE TABLE INT_LOCK (LOCK_KEY CHAR(36), REGION CHAR(100))", "CREATE TABLE int_lock (STRANGE INT)")
		if err := schema.Check(ctx, db, "int_"); err != nil {
			t.Errorf("Check(int_) beside INT_LOCK: %v", err)
		}
		if err := schema.Check(ctx, db, "INT_"); !errors.Is(err, schema.ErrMismatch) || strings.Contains(err.Error(), "STRANGE") {
			t.Errorf("Check(INT_) beside int_lock: %v; want ErrMismatch without a word about STRANGE", err)
		}
		err = schema.Check(ctx, db, "Int_")
		if !errors.Is(err, schema.ErrMissing) {
			t.Errorf("Check(Int_): %v; want ErrMissing", err)
		}
	})
}

var hostile = []string{
	"", " ", "INT_'", `INT_"`, "INT_`", "INT_;", "x;DROP TABLE users;--", "INT_%", "%s", "INT_\x00", "INT_\xff", "INT_ ",
	"INT-", "ÄINT_", ".INT_", "a.b.INT_", "app.", "1INT_", "INT_\n", "INT_--", "INT_/*", "(SELECT 1)", strings.Repeat("A", 42),
	strings.Repeat("a", 32) + ".INT_",
}

// deaf fails the test when anything reaches the database.
type deaf struct{ t *testing.T }

func (d deaf) QueryContext(_ context.Context, query string, _ ...any) (*sql.Rows, error) {
	d.t.Errorf("queried: %s", query)
	return nil, errors.New("deaf")
}

func (d deaf) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	d.t.Errorf("executed: %s", query)
	return nil, errors.New("deaf")
}

func TestHostilePrefixReachesNoServer(t *testing.T) {
	for _, prefix := range hostile {
		for op, f := range map[string]func(context.Context, schema.DB, string) error{
			"apply": schema.Apply, "check": schema.Check, "drop": schema.Drop,
		} {
			if err := f(t.Context(), deaf{t}, prefix); err == nil || !strings.Contains(err.Error(), "schema: "+op) {
				t.Errorf("%s with prefix %q: %v; want an error that names the operation", op, prefix, err)
			}
		}
	}
}

func TestErrorsNameOperationAndTableAndWrapTheCause(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		closed := db.Again(t)
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		for op, f := range map[string]func(context.Context, schema.DB, string) error{
			"apply": schema.Apply, "check": schema.Check, "drop": schema.Drop,
		} {
			err := f(t.Context(), closed, "APP_")
			if err == nil || !strings.Contains(err.Error(), "schema: "+op+" table APP_LOCK: ") || !strings.Contains(err.Error(), "database is closed") {
				t.Errorf("%s on a closed pool: %v", op, err)
			}
			if err := f(ended, db, "APP_"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a cancelled context: %v", op, err)
			}
		}

		readOnly := readOnlyPool(t, db)
		err := schema.Apply(t.Context(), readOnly, "INT_")
		if err == nil || !strings.Contains(err.Error(), "schema: apply table INT_LOCK: ") || errors.Is(err, schema.ErrMissing) || errors.Unwrap(err) == nil {
			t.Errorf("Apply without the right to create: %v; want the database's own reason", err)
		}
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		if err := schema.Apply(t.Context(), readOnly, "INT_"); err != nil {
			t.Errorf("Apply without the right to create, with a table that fits: %v", err)
		}
		if err := schema.Check(t.Context(), readOnly, "INT_"); err != nil {
			t.Errorf("Check without the right to create: %v", err)
		}
		if err := schema.Drop(t.Context(), readOnly, "INT_"); err == nil || !strings.Contains(err.Error(), "schema: drop table INT_LOCK: ") {
			t.Errorf("Drop without the right to: %v", err)
		}
	})
}

// readOnlyPool is one whose connections may read only.
func readOnlyPool(t *testing.T, db *testdb.DB) *testdb.DB {
	switch db.Vendor {
	case vendor.Postgres:
		return db.With(t, map[string]string{"default_transaction_read_only": "on"})
	case vendor.SQLite:
		return db.With(t, map[string]string{"_pragma": "query_only(1)"})
	}
	pool := db.With(t, nil)
	pool.SetMaxOpenConns(1) // the setting is the session's
	exec(t, pool, "SET SESSION TRANSACTION READ ONLY")
	return pool
}

func exec(t *testing.T, db schema.DB, all ...string) {
	t.Helper()
	for _, statement := range all {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s\n%v", statement, err)
		}
	}
}
