package testdb

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/vendor"
)

func TestNewErrors(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		if db.Vendor != vendor.Postgres {
			t.Skip("only Postgres logs a failed statement")
		}
		if os.Getenv(LogEnv(db.Vendor)) == "" {
			t.Skip("the log of this server is not known")
		}
		other := Open(t, db.Vendor)
		mark, otherMark := db.LogMark(t), other.LogMark(t)
		run(t, db.DB, "SELECT 1")
		if got := mark.NewErrors(t); len(got) != 0 {
			t.Errorf("a good statement left %q", got)
		}
		if _, err := db.ExecContext(testContext(t), "SELECT * FROM nowhere"); err == nil {
			t.Fatal("no error")
		}
		got := mark.NewErrors(t)
		if len(got) != 1 || !strings.Contains(got[0], `"nowhere" does not exist`) || !strings.Contains(got[0], "SELECT * FROM nowhere") {
			t.Errorf("want the one error with its statement, got %q", got)
		}
		if got := otherMark.NewErrors(t); len(got) != 0 {
			t.Errorf("another database's error was taken for ours: %q", got)
		}
		if got := db.LogMark(t).NewErrors(t); len(got) != 0 {
			t.Errorf("an old error was taken for new: %q", got)
		}
	})
}

func TestNewErrorsUnknownLog(t *testing.T) {
	db := &DB{Vendor: vendor.Postgres, server: &server{vendor: vendor.Postgres}}
	if got := db.LogMark(t).NewErrors(t); got != nil {
		t.Errorf("got %q", got)
	}
}

// A deadlock is the one failed statement that MySQL and MariaDB log.
func TestNewErrorsSeesDeadlocks(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		if db.Vendor == vendor.SQLite {
			t.Skip("one writer at a time: no deadlocks, and no log")
		}
		if os.Getenv(LogEnv(db.Vendor)) == "" {
			t.Skip("the log of this server is not known")
		}
		run(t, db.DB, "CREATE TABLE pair (id INTEGER PRIMARY KEY, n INTEGER)")
		run(t, db.DB, "INSERT INTO pair VALUES (1, 0), (2, 0)")
		other := Open(t, db.Vendor)
		mark, otherMark := db.LogMark(t), other.LogMark(t)

		var first, second *sql.Tx
		for _, tx := range []**sql.Tx{&first, &second} {
			var err error
			if *tx, err = db.BeginTx(testContext(t), nil); err != nil {
				t.Fatal(err)
			}
			defer (*tx).Rollback()
		}
		update := func(tx *sql.Tx, id int) error {
			_, err := tx.Exec(fmt.Sprintf("UPDATE pair SET n = n + 1 WHERE id = %d", id))
			return err
		}
		if err := errors.Join(update(first, 1), update(second, 2)); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			err := update(first, 2)
			if err != nil {
				_ = first.Rollback()
			}
			waits <- err
		}()
		err := update(second, 1)
		if err != nil {
			_ = second.Rollback() // lets the other go on
		}
		if other := <-waits; (err == nil) == (other == nil) {
			t.Fatalf("want one victim, got %v and %v", err, other)
		}

		if got := mark.NewErrors(t); len(got) != 1 || !strings.Contains(got[0], "eadlock") {
			t.Errorf("want the one deadlock, got %d: %q", len(got), got)
		}
		if got := otherMark.NewErrors(t); len(got) != 0 {
			t.Errorf("another database's deadlock was taken for ours: %q", got)
		}
	})
}
