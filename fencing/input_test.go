package fencing_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// TestNamesAreKeptApart: names that look like SQL, like a pattern or like each
// other are different resources.
func TestNamesAreKeptApart(t *testing.T) {
	names := []string{
		"a", "A", "ä", "á", "a\u0301", "ａ", "ß", "ss", "i", "ı", "İ",
		"a'b", `a"b`, "a`b", `a\b`, `a\'b`, "a;b", "a--b", "a/*b*/", "'; DROP TABLE INT_LOCK_FENCE; --",
		"?", "$1", ":name", "%s", "%", "_", "NULL", "0", "00", "1e0", "1",
		"a b", "a  b", "a\tb", "a\n", "\ta", "a\u00a0", "\u200b", "\x01", "\x7f",
		"日本", "🔒", strings.Repeat("🔒", 255), strings.Repeat("x", 255), strings.Repeat("x", 254),
	}
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		mark := db.LogMark(t)
		g, err := fencing.NewGuard(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if err := g.Advance(t.Context(), name, int64(i+2)); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		for i, name := range names {
			mustBeStale(t, fmt.Sprintf("%q", name), g.Advance(t.Context(), name, int64(i+1)), name, int64(i+1), int64(i+2))
		}
		if got := number(t, db, "SELECT COUNT(*) FROM INT_LOCK_FENCE"); got != int64(len(names)) {
			t.Errorf("%d rows, want %d", got, len(names))
		}
		silent(t, mark)
	})
}

func TestBadNames(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		mark := db.LogMark(t)
		g, err := fencing.NewGuard(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", " ", "a ", " a", "a\x00", "\x00", "a\xff", "\xc3", strings.Repeat("x", 256), strings.Repeat("🔒", 256), strings.Repeat("x", 100_000)} {
			tx := begin(t, db, sql.LevelDefault)
			checked := g.Check(t.Context(), tx, name, 1)
			tx.Rollback()
			for _, err := range []error{checked, g.Advance(t.Context(), name, 1)} {
				if !errors.Is(err, fencing.ErrInvalid) {
					t.Errorf("%.20q: %v, want ErrInvalid", name, err)
				} else if len(err.Error()) > 400 {
					t.Errorf("an error of %d bytes: %.100v", len(err.Error()), err)
				}
			}
		}
		if got := number(t, db, "SELECT COUNT(*) FROM INT_LOCK_FENCE"); got != 0 {
			t.Errorf("%d rows, want none", got)
		}
		silent(t, mark)
	})
}

// TestBadIdentifiers: refused before anything is sent; the pool leads nowhere.
func TestBadIdentifiers(t *testing.T) {
	nowhere, err := sql.Open("postgres", "postgres://user@127.0.0.1:1/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	bad := []string{"", " ", "a b", "a'", `"a"`, "a`", "a;", "a--", "a\x00", "a\xff", "ä", "1a", "a.b.c", ".a", "a.", "(SELECT 1)", "a,b", "a?", "$1", strings.Repeat("x", 64), strings.Repeat("x", 100_000)}
	check := func(what, value string, err error) {
		t.Helper()
		if !errors.Is(err, fencing.ErrInvalid) {
			t.Errorf("%s %.20q: %v, want ErrInvalid", what, value, err)
		} else if len(err.Error()) > 400 || !strings.Contains(err.Error(), what) {
			t.Errorf("%s %.20q: %.500v", what, value, err)
		}
	}
	for _, name := range bad {
		_, err := fencing.NewColumnGuard(t.Context(), nowhere, name, "id", "fence")
		check("table", name, err)
		_, err = fencing.NewColumnGuard(t.Context(), nowhere, "account", name, "fence")
		check("column", name, err)
		_, err = fencing.NewColumnGuard(t.Context(), nowhere, "account", "id", name)
		check("column", name, err)
		_, err = fencing.NewGuard(t.Context(), nowhere, fencing.WithPrefix(name+"'"))
		check("prefix", name, err)
	}
	_, err = fencing.NewColumnGuard(t.Context(), nowhere, "account", "id.x", "fence")
	check("column", "id.x", err)
	_, err = fencing.NewColumnGuard(t.Context(), nowhere, "account", "id", "ID")
	check("column", "ID", err)
}

// TestNoSecrets: a password of the DSN is in no error.
func TestNoSecrets(t *testing.T) {
	for _, dsn := range []string{
		"postgres://user:canary@127.0.0.1:bad/db", "postgres://user:canary x@127.0.0.1/db", "postgres://user@127.0.0.1:canary@/db",
		"postgres://user:canary@127.0.0.1:1/db?sslmode=disable", "host=127.0.0.1 port=1 user=u password='canary x' sslmode=nonsense",
	} {
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			continue // refused before it came to us
		}
		defer db.Close()
		if _, err := fencing.NewGuard(t.Context(), db); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("NewGuard: %v", err)
		}
		if _, err := fencing.NewColumnGuard(t.Context(), db, "account", "id", "fence"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("NewColumnGuard: %v", err)
		}
	}
}

// TestMissingTable: the error names what is missing and what to do.
func TestMissingTable(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		_, err := fencing.NewGuard(t.Context(), db.DB)
		if err == nil || !strings.Contains(err.Error(), "INT_LOCK_FENCE") || !strings.Contains(err.Error(), "schema.Apply") {
			t.Errorf("no table: %v", err)
		}
		createTables(t, db)
		for _, names := range [][3]string{{"nothing", "id", "fence"}, {"account", "nothing", "fence"}, {"account", "id", "nothing"}} {
			_, err := fencing.NewColumnGuard(t.Context(), db.DB, names[0], names[1], names[2])
			if err == nil || errors.Is(err, fencing.ErrInvalid) || !strings.Contains(err.Error(), "nothing") {
				t.Errorf("%q: %v", names, err)
			}
		}
	})
}

// TestPrefixAndSchema: other names, and tables in a schema.
func TestPrefixAndSchema(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		space := map[string]string{vendor.Postgres: "public", vendor.SQLite: "main"}[db.Vendor]
		if space == "" {
			space = db.Name
		}
		apply(t, db, "other_")
		for _, prefix := range []string{"other_", space + ".other_", space + ".INT_"} {
			g, err := fencing.NewGuard(t.Context(), db.DB, fencing.WithPrefix(prefix))
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{g.Advance(t.Context(), "a", 2), g.Advance(t.Context(), "a", 3)} {
				if err != nil {
					t.Errorf("prefix %s: %v", prefix, err)
				}
			}
			mustBeStale(t, prefix, g.Advance(t.Context(), "a", 2), "a", 2, 3)
			exec(t, db, "DELETE FROM other_LOCK_FENCE")
		}
		g, err := fencing.NewColumnGuard(t.Context(), db.DB, space+".account", "id", "fence")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Advance(t.Context(), 1, 2); err != nil {
			t.Error(err)
		}
	})
}

// TestMissingRow is an error of its own.
func TestMissingRow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		mark := db.LogMark(t)
		g, err := fencing.NewColumnGuard(t.Context(), db.DB, "account", "id", "fence")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []any{4711, int64(-1), nil} {
			tx := begin(t, db, sql.LevelDefault)
			for _, err := range []error{g.Check(t.Context(), tx, key, 7), g.Check(t.Context(), tx, key, 7)} {
				if !errors.Is(err, fencing.ErrNoResource) || errors.Is(err, fencing.ErrStaleToken) || errors.Is(err, fencing.ErrInvalid) || retryable(err) {
					t.Errorf("key %v: %v, want ErrNoResource", key, err)
				}
			}
			tx.Rollback()
			if err := g.Advance(t.Context(), key, 7); !errors.Is(err, fencing.ErrNoResource) {
				t.Errorf("Advance %v: %v, want ErrNoResource", key, err)
			}
		}
		if got := number(t, db, "SELECT COUNT(*) FROM account WHERE fence IS NOT NULL"); got != 0 {
			t.Errorf("%d rows have been written", got)
		}
		silent(t, mark)
	})
}

// TestUsersTables: keys of other types, and columns that are not what they
// should be. A guard may fail there, but never let a stale token pass.
func TestUsersTables(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		for i, c := range []struct {
			name       string
			key, token string // types
			insert     string // rows
			value      any    // the key
			tooSmall   bool
			notUnique  bool
		}{
			{name: "text key", key: "VARCHAR(100) PRIMARY KEY", token: "BIGINT", insert: "('it''s me', NULL)", value: "it's me"},
			{name: "a key of the user's own type", key: "CHAR(5) PRIMARY KEY", token: "BIGINT NOT NULL DEFAULT 0", insert: "('no-42', 0)", value: ticket(42)},
			{name: "below zero", key: "BIGINT PRIMARY KEY", token: "BIGINT", insert: "(1, -5)", value: 1},
			{name: "a small column", key: "BIGINT PRIMARY KEY", token: "SMALLINT", insert: "(1, NULL)", value: 1, tooSmall: db.Vendor != vendor.SQLite},
			{name: "a text column", key: "BIGINT PRIMARY KEY", token: "VARCHAR(20)", insert: "(1, NULL)", value: 1},
			{name: "a numeric column", key: "BIGINT PRIMARY KEY", token: "NUMERIC(20)", insert: "(1, NULL)", value: 1},
			{name: "two rows", key: "BIGINT NOT NULL", token: "BIGINT", insert: "(1, NULL), (1, NULL)", value: 1, notUnique: true},
			{name: "two rows, one of them newer", key: "BIGINT NOT NULL", token: "BIGINT", insert: "(1, 12), (1, NULL)", value: 1, notUnique: true},
		} {
			t.Run(c.name, func(t *testing.T) {
				table := fmt.Sprint("users_", i)
				exec(t, db, fmt.Sprintf("CREATE TABLE %s (k %s, c %s)", table, c.key, c.token))
				exec(t, db, fmt.Sprintf("INSERT INTO %s (k, c) VALUES %s", table, c.insert))
				g, err := fencing.NewColumnGuard(t.Context(), db.DB, table, "k", "c")
				if err != nil {
					t.Fatal(err)
				}
				if c.notUnique {
					before := number(t, db, "SELECT COALESCE(MAX(c), 0) FROM "+table)
					if err := g.Advance(t.Context(), c.value, 9); err == nil || !strings.Contains(err.Error(), "unique") {
						t.Errorf("a key of two rows: %v", err)
					}
					if got := number(t, db, "SELECT COALESCE(MAX(c), 0) FROM "+table); got != before {
						t.Errorf("the highest was %d and is %d", before, got)
					}
					return
				}
				if c.token == "VARCHAR(20)" && db.Vendor == vendor.Postgres {
					var refused interface{ SQLState() string }
					if err := g.Advance(t.Context(), c.value, 9); !errors.As(err, &refused) {
						t.Errorf("Postgres compares a text with a number: %v", err)
					}
					return
				}
				for _, token := range []int64{9, 10, 100} { // as texts, these fall
					if err := g.Advance(t.Context(), c.value, token); err != nil {
						t.Errorf("token %d: %v", token, err)
					}
				}
				mustBeStale(t, c.name, g.Advance(t.Context(), c.value, 20), fmt.Sprint(c.value), 20, 100)
				err = g.Advance(t.Context(), c.value, 5_000_000_000)
				if (err != nil) != c.tooSmall || errors.Is(err, fencing.ErrStaleToken) {
					t.Errorf("a large token: %v", err)
				}
				if c.tooSmall && db.Vendor != vendor.Postgres { // a server that cuts instead of complaining
					lax, err := fencing.NewColumnGuard(t.Context(), db.With(t, map[string]string{"sql_mode": "''"}).DB, table, "k", "c")
					if err != nil {
						t.Fatal(err)
					}
					if err := lax.Advance(t.Context(), c.value, 5_000_000_000); err == nil || !strings.Contains(err.Error(), "BIGINT") {
						t.Errorf("a large token, cut: %v", err)
					}
				}
			})
		}
	})
}

type ticket int

func (n ticket) String() string               { return fmt.Sprintf("no-%d", int(n)) }
func (n ticket) Value() (driver.Value, error) { return n.String(), nil }

// TestRefusalFiresNoTrigger: the user's own triggers do not see a refused writer.
func TestRefusalFiresNoTrigger(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		createTables(t, db)
		switch db.Vendor {
		case vendor.Postgres:
			exec(t, db, `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO history SELECT COUNT(*), NEW.fence FROM history; RETURN NULL; END'`)
			exec(t, db, "CREATE TRIGGER note AFTER UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note()")
		case vendor.SQLite:
			exec(t, db, "CREATE TRIGGER note AFTER UPDATE ON account BEGIN INSERT INTO history SELECT COUNT(*), NEW.fence FROM history; END")
		default:
			exec(t, db, "CREATE TRIGGER note AFTER UPDATE ON account FOR EACH ROW INSERT INTO history SELECT COUNT(*), NEW.fence FROM history")
		}
		g, err := fencing.NewColumnGuard(t.Context(), db.DB, "account", "id", "fence")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Advance(t.Context(), 1, 8); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, db, sql.LevelDefault)
		mustBeStale(t, "the old holder", g.Check(t.Context(), tx, 1, 7), "1", 7, 8)
		if err := tx.Commit(); err != nil { // against all advice
			t.Fatal(err)
		}
		if got := number(t, db, "SELECT COUNT(*) FROM history"); got != 1 {
			t.Errorf("the trigger ran %d times, want once", got)
		}
	})
}

// TestDriverErrorsComeThrough: a generic helper still finds the driver's error.
func TestDriverErrorsComeThrough(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		tx := begin(t, db, sql.LevelDefault)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := g.check(t.Context(), tx, 1, 7); !errors.Is(err, sql.ErrTxDone) || !strings.Contains(err.Error(), g.name(1)) {
			t.Errorf("a transaction that is over: %v, want sql.ErrTxDone with the resource's name", err)
		}
		exec(t, db, "DROP TABLE INT_LOCK_FENCE")
		exec(t, db, "DROP TABLE account")
		err := g.advance(t.Context(), 1, 7)
		var state interface{ SQLState() string }
		var code interface{ Code() int }
		if !errors.As(err, &state) && !errors.As(err, &code) && !isMySQL(err) {
			t.Errorf("no table any more: %v, want the driver's error in it", err)
		}
	})
}
