package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/schema"
)

// fence is either kind of guard over the resources 1, 2 and 3.
type fence struct {
	check   func(ctx context.Context, tx fencing.Tx, resource int, token int64) error
	advance func(ctx context.Context, resource int, token int64) error
	highest func(t *testing.T, resource int) int64
	name    func(resource int) string // as errors call it
}

// eachGuard runs f with both kinds of guard on every vendor. The accounts 1, 2
// and 3 exist, and no resource has seen a token.
func eachGuard(t *testing.T, f func(t *testing.T, db *testdb.DB, g fence)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // with the other vendors: most of the time passes in waiting
		createTables(t, db)
		t.Run("table", func(t *testing.T) { f(t, db, tableFence(t, db)) })
		createTables(t, db)
		t.Run("column", func(t *testing.T) { f(t, db, columnFence(t, db)) })
	})
}

func tableFence(t *testing.T, db *testdb.DB) fence {
	t.Helper()
	g, err := fencing.NewGuard(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	name := func(resource int) string { return fmt.Sprint("account ", resource) }
	return fence{
		name: name,
		check: func(ctx context.Context, tx fencing.Tx, resource int, token int64) error {
			return g.Check(ctx, tx, name(resource), token)
		},
		advance: func(ctx context.Context, resource int, token int64) error {
			return g.Advance(ctx, name(resource), token)
		},
		highest: func(t *testing.T, resource int) int64 {
			t.Helper()
			return number(t, db, "SELECT COALESCE(MAX(TOKEN), 0) FROM INT_LOCK_FENCE WHERE RESOURCE = '"+name(resource)+"'")
		},
	}
}

func columnFence(t *testing.T, db *testdb.DB) fence {
	t.Helper()
	g, err := fencing.NewColumnGuard(t.Context(), db.DB, "account", "id", "fence")
	if err != nil {
		t.Fatal(err)
	}
	return fence{
		name: func(resource int) string { return fmt.Sprint(resource) },
		check: func(ctx context.Context, tx fencing.Tx, resource int, token int64) error {
			return g.Check(ctx, tx, resource, token)
		},
		advance: func(ctx context.Context, resource int, token int64) error { return g.Advance(ctx, resource, token) },
		highest: func(t *testing.T, resource int) int64 {
			t.Helper()
			return number(t, db, fmt.Sprint("SELECT COALESCE(fence, 0) FROM account WHERE id = ", resource))
		},
	}
}

func createTables(t *testing.T, db *testdb.DB) {
	t.Helper()
	for _, table := range []string{"INT_LOCK_FENCE", "account", "history"} {
		exec(t, db, "DROP TABLE IF EXISTS "+table)
	}
	apply(t, db, schema.DefaultPrefix)
	exec(t, db, "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT)")
	exec(t, db, "INSERT INTO account (id, balance) VALUES (1, 0), (2, 0), (3, 0)")
	exec(t, db, "CREATE TABLE history (n BIGINT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)")
}

func apply(t *testing.T, db *testdb.DB, prefix string) {
	t.Helper()
	if err := schema.Apply(t.Context(), db, prefix); err != nil {
		t.Fatal(err)
	}
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func exec(t *testing.T, db execer, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func number(t *testing.T, db queryer, query string) int64 {
	t.Helper()
	var n int64
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// begin opens a transaction that ends with the test at the latest.
func begin(t *testing.T, db *testdb.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func mustBeStale(t *testing.T, what string, err error, resource string, presented, highest int64) {
	t.Helper()
	var stale *fencing.StaleTokenError
	if !errors.Is(err, fencing.ErrStaleToken) || !errors.As(err, &stale) {
		t.Errorf("%s: %v, want ErrStaleToken", what, err)
		return
	}
	if want := (fencing.StaleTokenError{Resource: resource, Presented: presented, Highest: highest}); *stale != want {
		t.Errorf("%s: %+v, want %+v", what, *stale, want)
	}
	if retryable(err) {
		t.Errorf("%s: %v looks like an error that passes", what, err)
	}
}

// inTx is how an application might run a transaction, again and again while
// the database says that this may help. It knows nothing of fencing.
func inTx(ctx context.Context, db *sql.DB, level sql.IsolationLevel, work func(tx *sql.Tx) error) (tries int, err error) {
	for tries = 1; ; tries++ {
		err = func() error {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := work(tx); err != nil {
				return err
			}
			return tx.Commit()
		}()
		if !retryable(err) || tries == 500 {
			return tries, err
		}
		time.Sleep(time.Duration(tries%10) * time.Millisecond)
	}
}

func retryable(err error) bool {
	var postgres interface{ SQLState() string }
	var my *mysql.MySQLError
	var lite interface{ Code() int }
	switch {
	case errors.As(err, &postgres):
		return postgres.SQLState() == "40001" || postgres.SQLState() == "40P01"
	case errors.As(err, &my):
		return my.Number == 1213 || my.Number == 1020
	case errors.As(err, &lite):
		return lite.Code()&0xff == 5
	}
	var passing interface{ Temporary() bool }
	return errors.As(err, &passing) && passing.Temporary()
}

func silent(t *testing.T, mark *testdb.Mark) {
	t.Helper()
	for _, line := range mark.NewErrors(t) {
		t.Errorf("the server's log has: %s", line)
	}
}

func isMySQL(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my)
}
