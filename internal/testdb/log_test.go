package testdb

import (
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
