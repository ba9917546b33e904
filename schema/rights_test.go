package schema_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// An application's user may read and write rows, and create nothing.
func TestCheckAndApplyNeedNoRightToCreate(t *testing.T) {
	for _, name := range servers {
		t.Run(name, func(t *testing.T) {
			db := applied(t, name)
			mark := db.LogMark(t)
			// What the page of each vendor tells to grant. Postgres shows the
			// catalog to everybody, so there nothing need be granted.
			pool := humble(t, db, map[string][]string{
				vendor.MySQL:   {"SELECT ON INT_LOCK", "INSERT ON INT_LOCK_TOKEN", "SELECT ON INT_LOCK_FENCE"},
				vendor.MariaDB: {"SELECT ON INT_LOCK", "SELECT, INSERT ON INT_LOCK_TOKEN", "SELECT ON INT_LOCK_FENCE"},
			}[name]...)
			if err := schema.Check(t.Context(), pool, "INT_"); err != nil {
				t.Errorf("Check: %v", err)
			}
			if err := schema.Apply(t.Context(), pool, "INT_"); err != nil {
				t.Errorf("Apply: %v", err)
			}
			for _, line := range mark.NewErrors(t) {
				t.Errorf("the server logged an error: %s", line)
			}

			removeCompanions(t, db, "INT_")
			err := schema.Apply(t.Context(), pool, "INT_")
			if err == nil || !strings.Contains(err.Error(), "schema: apply table INT_LOCK: ") || !strings.Contains(err.Error(), "denied") {
				t.Errorf("Apply of what is missing: %v; want the database's own reason", err)
			}
		})
	}
}

func TestASequenceThatCannotBeReadIsNamed(t *testing.T) {
	db := applied(t, vendor.MariaDB)
	pool := humble(t, db, "SELECT ON INT_LOCK", "INSERT ON INT_LOCK_TOKEN", "SELECT ON INT_LOCK_FENCE")
	err := schema.Check(t.Context(), pool, "INT_")
	if err == nil || !strings.Contains(err.Error(), "schema: check table INT_LOCK: INT_LOCK_TOKEN: read the sequence: ") || !strings.Contains(err.Error(), "SELECT") {
		t.Errorf("Check without SELECT: %v; want an error that says so", err)
	}
}

// humble is a pool of a user who has these rights in the database and no other.
func humble(t *testing.T, db *testdb.DB, grants ...string) schema.DB {
	t.Helper()
	if db.Vendor == vendor.Postgres {
		pool := db.Again(t)
		pool.SetMaxOpenConns(1)                                                           // the role is the session's
		exec(t, db, "CREATE ROLE "+db.Name, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // 14 grants it
		t.Cleanup(func() {
			pool.Close()
			db.Exec("DROP ROLE " + db.Name)
		})
		exec(t, pool, "SET ROLE "+db.Name)
		return pool
	}
	user := db.Name
	exec(t, db, "CREATE USER "+user+"@'%' IDENTIFIED BY 'Humble-4711'")
	t.Cleanup(func() { db.Exec("DROP USER " + user + "@'%'") })
	for _, grant := range grants {
		exec(t, db, "GRANT "+strings.Replace(grant, " ON ", " ON "+db.Name+".", 1)+" TO "+user+"@'%'")
	}
	_, rest, _ := strings.Cut(db.DSN, "@")
	pool, err := sql.Open(db.Driver, user+":Humble-4711@"+rest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}
