package schema_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// objects lists the tables and sequences of the test's database.
func objects(t *testing.T, db *testdb.DB) []string {
	t.Helper()
	text := map[string]string{
		vendor.Postgres: "SELECT upper(relname) FROM pg_class WHERE relkind IN ('r', 'S', 'v') AND relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
		vendor.SQLite:   "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')",
	}[db.Vendor]
	if text == "" {
		text = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
	}
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// removeCompanions leaves what a release without tokens has made.
func removeCompanions(t *testing.T, db *testdb.DB, prefix string) {
	t.Helper()
	text, err := schema.DropScript(db.Vendor, prefix)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, schema.Statements(text)[1:]...)
}

// draw draws a token for a lock as the vendor's lock call does, on a lock row
// that is there.
func draw(t *testing.T, db schema.DB, name string) int64 {
	t.Helper()
	ask := map[string]string{
		vendor.Postgres: "SELECT nextval('INT_LOCK_TOKEN')",
		vendor.MariaDB:  "SELECT NEXTVAL(INT_LOCK_TOKEN)",
		vendor.MySQL:    "SELECT MAX(TOKEN) FROM INT_LOCK_TOKEN",
		vendor.SQLite:   "INSERT INTO INT_LOCK_TOKEN (ID, TOKEN) VALUES (1, 1) ON CONFLICT (ID) DO UPDATE SET TOKEN = TOKEN + 1 RETURNING TOKEN",
	}[name]
	if name == vendor.MySQL {
		exec(t, db, "REPLACE INTO INT_LOCK_TOKEN (LOCK_KEY, REGION) SELECT LOCK_KEY, REGION FROM INT_LOCK WHERE REGION = 'DEFAULT' FOR UPDATE")
	}
	rows, err := db.QueryContext(t.Context(), ask)
	if err != nil {
		t.Fatalf("%s\n%v", ask, err)
	}
	defer rows.Close()
	var token int64
	if !rows.Next() {
		t.Fatalf("%s: no row, %v", ask, rows.Err())
	}
	if err := rows.Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

// An older release has made the lock table and nothing else.
func TestAnOlderDatabaseGetsWhatIsMissing(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		mark := db.LogMark(t)
		db.SetMaxOpenConns(1)
		all := []string{"INT_LOCK", "INT_LOCK_FENCE", "INT_LOCK_TOKEN"}
		text, err := schema.Script(db.Vendor, "INT_")
		if err != nil {
			t.Fatal(err)
		}
		for way, mend := range map[string]func(*schema.MismatchError) error{
			"Apply": func(*schema.MismatchError) error { return schema.Apply(ctx, db, "INT_") },
			"Statements": func(mismatch *schema.MismatchError) error {
				exec(t, db, mismatch.Statements()...)
				return nil
			},
		} {
			exec(t, db, schema.Statements(text)[0], spring(db.Vendor, springInsert))
			err := schema.Check(ctx, db, "INT_")
			if way == "Apply" {
				t.Log(err)
			}
			mismatch := requireMismatch(t, err)
			if len(mismatch.Problems) != 2 || mismatch.Problems[0].Object != "INT_LOCK_TOKEN" || mismatch.Problems[1].Object != "INT_LOCK_FENCE" {
				t.Fatalf("Check of the lock table alone: %v; want two findings, about the other two", err)
			}
			requireFinding(t, mismatch, "", "nothing of that name")
			if err := mend(mismatch); err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			if err := schema.Check(ctx, db, "INT_"); err != nil {
				t.Errorf("Check after %s: %v", way, err)
			}
			if got := objects(t, db); !slices.Equal(got, all) {
				t.Errorf("after %s there are %q; want %q", way, got, all)
			}
			if n := count(t, db); n != 1 {
				t.Errorf("%d rows after %s; want 1", n, way)
			}
			if err := schema.Drop(ctx, db, "INT_"); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range mark.NewErrors(t) {
			t.Errorf("the server logged an error: %s", line)
		}
	})
}

func TestApplyLeavesTokensAndMarksAlone(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		if err := schema.Apply(ctx, db, "INT_"); err != nil {
			t.Fatal(err)
		}
		exec(t, db, spring(db.Vendor, springInsert), "INSERT INTO INT_LOCK_FENCE (RESOURCE, TOKEN) VALUES ('a', 41)")
		before := draw(t, db, db.Vendor)
		exec(t, db, "DROP TABLE INT_LOCK")
		if err := schema.Check(ctx, db, "INT_"); !errors.Is(err, schema.ErrMissing) {
			t.Errorf("Check without the lock table: %v; want ErrMissing", err)
		}
		if err := schema.Apply(ctx, db, "INT_"); err != nil {
			t.Fatal(err)
		}
		exec(t, db, spring(db.Vendor, springInsert))
		if after := draw(t, db, db.Vendor); after <= before {
			t.Errorf("token %d after %d", after, before)
		}
		var mark int64
		if err := db.QueryRowContext(ctx, "SELECT TOKEN FROM INT_LOCK_FENCE WHERE RESOURCE = 'a'").Scan(&mark); err != nil || mark != 41 {
			t.Errorf("the mark is %d, %v; want 41", mark, err)
		}
	})
}

// With the lock table in a later schema of the search_path, a token source in
// the first would be seen by this service and not by others.
func TestWhatIsMissingGoesBesideTheLockTable(t *testing.T) {
	for _, way := range []string{"apply", "statements"} {
		t.Run(way, func(t *testing.T) {
			db := testdb.Open(t, vendor.Postgres)
			ctx := t.Context()
			exec(t, db, "CREATE SCHEMA one", `CREATE SCHEMA "Two.2"`)
			if err := schema.Apply(ctx, db.With(t, map[string]string{"search_path": `"Two.2"`}), "INT_"); err != nil {
				t.Fatal(err)
			}
			both := db.With(t, map[string]string{"search_path": `one,"Two.2"`})
			removeCompanions(t, both, "INT_")
			if way == "apply" {
				if err := schema.Apply(ctx, both, "INT_"); err != nil {
					t.Fatal(err)
				}
			} else {
				exec(t, both, requireMismatch(t, schema.Check(ctx, both, "INT_")).Statements()...)
			}
			if err := schema.Check(ctx, db.With(t, map[string]string{"search_path": `"Two.2"`}), "INT_"); err != nil {
				t.Errorf("for a service that sees the lock table's schema only: %v", err)
			}

			exec(t, both, "CREATE SEQUENCE one.INT_LOCK_TOKEN")
			mismatch := requireMismatch(t, schema.Check(ctx, both, "INT_"))
			if p := mismatch.Problems[0]; len(mismatch.Problems) > 1 || p.Object != "INT_LOCK_TOKEN" || p.Fix != "" || !strings.Contains(mismatch.Error(), `found one in one, want one in "Two.2", beside INT_LOCK`) {
				t.Errorf("with a token source in another schema: %v; want a finding that names both", mismatch)
			}
		})
	}
}

func TestDropLeavesWhatIsNotOurs(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		for _, name := range []string{"INT_LOCK", "INT_LOCK_TOKEN", "INT_LOCK_FENCE"} {
			for kind, create := range map[string]string{
				"a table of another shape": "CREATE TABLE " + name + " (A INT)",
				"a view":                   "CREATE VIEW " + name + " AS SELECT 1 AS RESOURCE",
			} {
				if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
					t.Fatal(err)
				}
				what := "TABLE "
				if name == "INT_LOCK_TOKEN" && (db.Vendor == vendor.Postgres || db.Vendor == vendor.MariaDB) {
					what = "SEQUENCE "
				}
				exec(t, db, "DROP "+what+name, create)
				before := objects(t, db)
				mismatch := requireMismatch(t, schema.Drop(t.Context(), db, "INT_"))
				if mismatch.Problems[0].Object != name || len(mismatch.Statements()) > 0 {
					t.Errorf("%s as %s: %v; want a finding about it without statements", name, kind, mismatch)
				}
				if after := objects(t, db); !slices.Equal(after, before) {
					t.Errorf("%s as %s: Drop left %q of %q", name, kind, after, before)
				}
				if kind == "a view" {
					exec(t, db, "DROP VIEW "+name)
				} else {
					exec(t, db, "DROP TABLE "+name)
				}
				if err := schema.Drop(t.Context(), db, "INT_"); err != nil {
					t.Errorf("%s was %s: Drop of the rest: %v", name, kind, err)
				}
				if left := objects(t, db); len(left) > 0 {
					t.Errorf("Drop left %q", left)
				}
			}
		}
	})
}

// Apply must not make a lock table that cannot have tokens.
func TestApplyCreatesNothingBesideWhatDoesNotFit(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		exec(t, db, "CREATE VIEW INT_LOCK_TOKEN AS SELECT 1 AS A")
		mismatch := requireMismatch(t, schema.Apply(t.Context(), db, "INT_"))
		if !strings.Contains(mismatch.Error(), "INT_LOCK_TOKEN does not fit:\n- found a view") {
			t.Errorf("Apply: %v; want it to say what is in the way", mismatch)
		}
		if got := objects(t, db); len(got) != 1 {
			t.Errorf("there are %q; want the view alone", got)
		}
		exec(t, db, "DROP VIEW INT_LOCK_TOKEN")
		exec(t, db, mismatch.Statements()...)
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Error(err)
		}
	})
}

func TestTokensRise(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		exec(t, db, spring(db.Vendor, springInsert))
		pools := []*testdb.DB{db, db.Again(t), db.Again(t)}
		last := int64(0)
		for i := range 60 {
			got := draw(t, pools[i%len(pools)], db.Vendor)
			if got <= last {
				t.Fatalf("token %d after %d", got, last)
			}
			last = got
			if db.Vendor == vendor.MySQL && i%7 == 0 {
				exec(t, db, "DELETE FROM INT_LOCK_TOKEN")
			}
		}
	})
}

func TestResourcesAreTakenLiterally(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("語", 254)
		for i, name := range []string{"order", "Order", "ORDER", "order ", "order  ", "örder", "o\u0308rder", "😀", "😁", "", " ", long + "a", long + "b"} {
			exec(t, db, "INSERT INTO INT_LOCK_FENCE (RESOURCE, TOKEN) VALUES ('"+name+"', 9223372036854775807)")
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM INT_LOCK_FENCE").Scan(&n); err != nil || n != i+1 {
				t.Errorf("%.20q: %d rows, %v; want %d", name, n, err, i+1)
			}
		}
		if _, err := db.ExecContext(t.Context(), "INSERT INTO INT_LOCK_FENCE (RESOURCE, TOKEN) VALUES ('order', 1)"); err == nil {
			t.Error("the same resource went in twice")
		}
	})
}
