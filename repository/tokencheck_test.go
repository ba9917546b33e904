package repository

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// TestStartCheckOfTokens: New says what is wrong with the token source and what
// to do about it, and leaves the server's log silent.
func TestStartCheckOfTokens(t *testing.T) {
	const alter = "ALTER SEQUENCE INT_LOCK_TOKEN "
	sequence := []string{vendor.Postgres, vendor.MariaDB}
	for _, c := range []struct {
		vendors []string
		change  string // empty: the source is missing
		says    []string
	}{
		{vendor.All(), "", []string{"schema.Apply", "INT_LOCK_TOKEN"}},
		{sequence, alter + "CACHE 20", []string{"CACHE 20", "schema.Check"}},
		{sequence, alter + "CYCLE", []string{"CYCLE", "schema.Check"}},
		{sequence, alter + "INCREMENT BY -1 MINVALUE -100", []string{"INCREMENT BY -1", "schema.Check"}},
		{[]string{vendor.MariaDB}, alter + "INCREMENT BY 0", []string{"INCREMENT BY 0", "schema.Check"}},
		{[]string{vendor.Postgres}, "CREATE TABLE INT_LOCK_TOKEN (TOKEN BIGINT)", []string{"not a sequence"}},
		{[]string{vendor.MariaDB}, "CREATE TABLE INT_LOCK_TOKEN (TOKEN BIGINT)", []string{"not a SEQUENCE"}},
		{[]string{vendor.MySQL, vendor.SQLite}, "CREATE TABLE INT_LOCK_TOKEN (NONSENSE BIGINT)", []string{"column"}},
	} {
		for _, name := range c.vendors {
			t.Run(name+"/"+c.says[0], func(t *testing.T) {
				db := testdb.Open(t, name)
				r := open(t, db, WithTokens())
				mark := db.LogMark(t)
				if !strings.HasPrefix(c.change, alter) {
					dropTokens(t, db)
				}
				if c.change != "" {
					if _, err := db.Exec(c.change); err != nil {
						t.Fatal(err)
					}
				}
				for _, opts := range [][]Option{{WithTokens()}, {WithTokens(), WithInsertQuery(r.InsertQuery())}} {
					_, err := New(t.Context(), db.DB, opts...)
					if !errors.Is(err, ErrTable) || errors.Is(err, ErrTransient) {
						t.Errorf("New = %v, want ErrTable", err)
					}
					for _, part := range c.says {
						if !strings.Contains(fmt.Sprint(err), part) {
							t.Errorf("%v does not say %q", err, part)
						}
					}
				}
				for _, opt := range []Option{WithoutStartCheck(), func(*config) {}} { // tokens are off
					if r, err := New(t.Context(), db.DB, opt); err != nil {
						t.Error(err)
					} else {
						r.Close()
					}
				}
				for _, line := range mark.NewErrors(t) {
					t.Errorf("the server's log has: %s", line)
				}
			})
		}
	}
}

// TestTokenRights: a user who may use the lock table and not the token source
// is told at the start what to grant; with the grant, tokens work.
func TestTokenRights(t *testing.T) {
	for name, grant := range map[string]string{
		vendor.Postgres: "USAGE ON SEQUENCE INT_LOCK_TOKEN",
		vendor.MySQL:    "SELECT, INSERT, DELETE ON INT_LOCK_TOKEN",
		vendor.MariaDB:  "SELECT, INSERT ON INT_LOCK_TOKEN",
	} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			insert := open(t, db).InsertQuery()
			mark := db.LogMark(t)
			user, pool := humble(t, db)
			run := func(statement string) {
				t.Helper()
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			run("GRANT SELECT, INSERT, UPDATE, DELETE ON INT_LOCK TO " + user)
			for _, opts := range [][]Option{{WithTokens()}, {WithTokens(), WithInsertQuery(insert)}} {
				_, err := New(t.Context(), pool, opts...)
				if !errors.Is(err, ErrTable) || !strings.Contains(fmt.Sprint(err), "run: GRANT "+grant+" TO") {
					t.Errorf("New = %v, want ErrTable with the grant", err)
				}
			}
			run("GRANT " + grant + " TO " + user)
			for i, opts := range [][]Option{{WithTokens()}, {WithTokens(), WithInsertQuery(insert)}} {
				r, err := New(t.Context(), pool, opts...)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if _, token := takeToken(t, r, fmt.Sprint("k", i)); token != int64(i+1)*TokenStep {
					t.Errorf("token %d, want %d", token, (i+1)*TokenStep)
				}
			}
			for _, line := range mark.NewErrors(t) {
				t.Errorf("the server's log has: %s", line)
			}
		})
	}
}

// humble is a pool of a user without any right, and how GRANT names the user.
func humble(t *testing.T, db *testdb.DB) (string, *sql.DB) {
	t.Helper()
	user, create, pool := db.Name, "CREATE ROLE "+db.Name, db.Again(t).DB
	if db.Vendor != vendor.Postgres {
		user += "@'%'"
		create = "CREATE USER " + user + " IDENTIFIED BY 'Humble-4711'"
	}
	if _, err := db.Exec(create); err != nil {
		t.Fatal(err)
	}
	if db.Vendor == vendor.Postgres {
		pool.SetMaxOpenConns(1) // the role is the session's
		if _, err := pool.Exec("SET ROLE " + user); err != nil {
			t.Fatal(err)
		}
	} else {
		_, address, _ := strings.Cut(db.DSN, "@")
		var err error
		if pool, err = sql.Open(db.Driver, db.Name+":Humble-4711@"+address); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		pool.Close()
		if db.Vendor == vendor.Postgres {
			db.Exec("DROP OWNED BY " + user)
			db.Exec("DROP ROLE " + user)
		} else {
			db.Exec("DROP USER " + user)
		}
	})
	return user, pool
}
