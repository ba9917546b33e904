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

var (
	servers = []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB}
	mysqls  = []string{vendor.MySQL, vendor.MariaDB}
	pg      = []string{vendor.Postgres}
	lite    = []string{vendor.SQLite}
	maria   = []string{vendor.MariaDB}
	all     = vendor.All()
)

// fault is a table that does not fit, and what must be said about it.
type fault struct {
	name    string
	vendors []string
	table   func(name string) *layout
	then    []string // statements after the table is there
	column  string
	says    string // in Found or Want of a finding about column
	keeps   bool   // the row must still be there after the fix
}

var faults = []fault{
	{name: "Spring 6.5 and older", vendors: all, table: spring6, column: "EXPIRED_AFTER", says: "Spring Integration 6.5"},
	{name: "Spring 6.5 and older, the other way", vendors: all, table: spring6, column: "EXPIRED_AFTER", says: "repository.WithSpring6Layout"},
	{name: "Spring 6.5 and older keeps its rows", vendors: servers, table: spring6, column: "ATTEMPT", says: "no such column", keeps: true},
	{name: "Spring 4.3's time without fractions", vendors: mysqls, table: func(v string) *layout { return spring6(v).with("CREATED_DATE", "DATETIME NOT NULL") },
		column: "CREATED_DATE", says: "DATETIME(6)", keeps: true},
	{name: "Spring 7 without ATTEMPT", vendors: all, table: spring7, column: "ATTEMPT", says: "no such column", keeps: true},
	{name: "Spring 7 without HOLDER", vendors: all, table: spring7, column: "HOLDER", says: "no such column", keeps: true},
	{name: "Spring 7 without LOCK_NAME", vendors: all, table: spring7, column: "LOCK_NAME", says: "no such column", keeps: true},
	{name: "no CLIENT_ID", vendors: all, table: func(v string) *layout { return ours(v).without("CLIENT_ID") }, column: "CLIENT_ID", says: "no such column", keeps: true},
	{name: "no CREATED_DATE", vendors: all, table: func(v string) *layout { return ours(v).without("CREATED_DATE") }, column: "CREATED_DATE", says: "no such column"},
	{name: "no date at all", vendors: all, table: func(v string) *layout { return ours(v).without("CREATED_DATE", "EXPIRED_AFTER") }, column: "EXPIRED_AFTER", says: "no such column"},

	{name: "timestamptz", vendors: pg, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "TIMESTAMPTZ NOT NULL") },
		column: "EXPIRED_AFTER", says: "timestamp with time zone", keeps: true},
	{name: "timestamptz(3) CREATED_DATE", vendors: pg, table: func(v string) *layout { return ours(v).with("CREATED_DATE", "TIMESTAMPTZ(3) NOT NULL") },
		column: "CREATED_DATE", says: "timestamp(3) with time zone", keeps: true},
	{name: "timestamp(0)", vendors: pg, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "TIMESTAMP(0) NOT NULL") },
		column: "EXPIRED_AFTER", says: "timestamp(0) without time zone", keeps: true},
	{name: "DATETIME", vendors: mysqls, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "DATETIME NOT NULL") },
		column: "EXPIRED_AFTER", says: "datetime", keeps: true},
	{name: "DATETIME(3)", vendors: mysqls, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "DATETIME(3) NOT NULL") },
		column: "EXPIRED_AFTER", says: "datetime(3)", keeps: true},
	{name: "MySQL TIMESTAMP(6)", vendors: mysqls, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "TIMESTAMP(6) NOT NULL") },
		column: "EXPIRED_AFTER", says: "timestamp(6)", keeps: true},
	{name: "text dates", vendors: all, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "VARCHAR(40) NOT NULL") },
		column: "EXPIRED_AFTER", says: "40"},
	{name: "dates as numbers", vendors: servers, table: func(v string) *layout {
		return ours(v).with("EXPIRED_AFTER", "BIGINT NOT NULL").value("EXPIRED_AFTER", "1767323055678")
	}, column: "EXPIRED_AFTER", says: "bigint"},
	{name: "SQLite DATETIME", vendors: lite, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "DATETIME NOT NULL") },
		column: "EXPIRED_AFTER", says: "DATETIME"},
	{name: "SQLite TEXT", vendors: lite, table: func(v string) *layout { return ours(v).with("CREATED_DATE", "TEXT NOT NULL") },
		column: "CREATED_DATE", says: "Unix milliseconds"},
	{name: "SQLite without types", vendors: lite, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "NOT NULL") },
		column: "EXPIRED_AFTER", says: "no type"},
	{name: "a date may be NULL", vendors: servers, table: func(v string) *layout {
		return ours(v).with("EXPIRED_AFTER", strings.TrimSuffix(ours(v).types["EXPIRED_AFTER"], " NOT NULL")).value("EXPIRED_AFTER", "NULL")
	}, column: "EXPIRED_AFTER", says: "NULL allowed", keeps: true},
	{name: "a date may be NULL on SQLite", vendors: lite, table: func(v string) *layout { return ours(v).with("EXPIRED_AFTER", "INTEGER") },
		column: "EXPIRED_AFTER", says: "NULL allowed"},
	{name: "a generated date", vendors: mysqls, table: func(v string) *layout {
		return ours(v).with("EXPIRED_AFTER", "DATETIME(6) GENERATED ALWAYS AS (CREATED_DATE + INTERVAL 10 SECOND) STORED").value("EXPIRED_AFTER", "")
	}, column: "EXPIRED_AFTER", says: "generated"},
	{name: "a generated date on Postgres", vendors: pg, table: func(v string) *layout {
		return ours(v).with("EXPIRED_AFTER", "TIMESTAMP NOT NULL GENERATED ALWAYS AS (CREATED_DATE + INTERVAL '10 seconds') STORED").value("EXPIRED_AFTER", "")
	}, column: "EXPIRED_AFTER", says: "generated"},
	{name: "a generated date on SQLite", vendors: lite, table: func(v string) *layout {
		return ours(v).with("EXPIRED_AFTER", "INTEGER NOT NULL GENERATED ALWAYS AS (CREATED_DATE + 10000)").value("EXPIRED_AFTER", "")
	}, column: "EXPIRED_AFTER", says: "generated"},

	{name: "LOCK_KEY too short", vendors: servers, table: func(v string) *layout {
		return ours(v).with("LOCK_KEY", "CHAR(32) NOT NULL").value("LOCK_KEY", "'a'")
	}, column: "LOCK_KEY", says: "32", keeps: true},
	{name: "REGION too short", vendors: servers, table: func(v string) *layout { return ours(v).with("REGION", "VARCHAR(99) NOT NULL") },
		column: "REGION", says: "99", keeps: true},
	{name: "CLIENT_ID too short", vendors: servers, table: func(v string) *layout { return ours(v).with("CLIENT_ID", "VARCHAR(35)") },
		column: "CLIENT_ID", says: "35", keeps: true},
	{name: "HOLDER too short", vendors: servers, table: func(v string) *layout { return ours(v).with("HOLDER", "VARCHAR(100)") },
		column: "HOLDER", says: "100", keeps: true},
	{name: "ATTEMPT too narrow", vendors: servers, table: func(v string) *layout { return ours(v).with("ATTEMPT", "INT") },
		column: "ATTEMPT", says: "int", keeps: true},
	{name: "ATTEMPT as text", vendors: servers, table: func(v string) *layout { return ours(v).with("ATTEMPT", "VARCHAR(20)").value("ATTEMPT", "'42'") },
		column: "ATTEMPT", says: "20", keeps: true},
	{name: "ATTEMPT as text on SQLite", vendors: lite, table: func(v string) *layout { return ours(v).with("ATTEMPT", "TEXT") }, column: "ATTEMPT", says: "TEXT"},
	{name: "LOCK_KEY as uuid", vendors: pg, table: func(v string) *layout { return ours(v).with("LOCK_KEY", "UUID NOT NULL") },
		column: "LOCK_KEY", says: "uuid", keeps: true},
	{name: "LOCK_KEY as number", vendors: lite, table: func(v string) *layout { return ours(v).with("LOCK_KEY", "NUMERIC NOT NULL") },
		column: "LOCK_KEY", says: "NUMERIC"},
	{name: "names in latin1", vendors: mysqls, table: func(v string) *layout { return ours(v).with("LOCK_NAME", "VARCHAR(255) CHARACTER SET latin1") },
		column: "LOCK_NAME", says: "latin1", keeps: true},

	{name: "ATTEMPT NOT NULL", vendors: servers, table: func(v string) *layout { return ours(v).with("ATTEMPT", "BIGINT NOT NULL").value("ATTEMPT", "1") },
		column: "ATTEMPT", says: "Java", keeps: true},
	{name: "HOLDER NOT NULL", vendors: mysqls, table: func(v string) *layout {
		return ours(v).with("HOLDER", "VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL").value("HOLDER", "'x'")
	}, column: "HOLDER", says: "Java", keeps: true},
	{name: "LOCK_NAME NOT NULL on SQLite", vendors: lite, table: func(v string) *layout { return ours(v).with("LOCK_NAME", "TEXT NOT NULL").value("LOCK_NAME", "'x'") },
		column: "LOCK_NAME", says: "Java"},
	{name: "a stranger NOT NULL", vendors: servers, table: func(v string) *layout { return ours(v).with("TENANT", "VARCHAR(10) NOT NULL").value("TENANT", "'x'") },
		column: "TENANT", says: "NOT NULL without a default", keeps: true},
	{name: "a stranger NOT NULL on SQLite", vendors: lite, table: func(v string) *layout { return ours(v).with("TENANT", "TEXT NOT NULL").value("TENANT", "'x'") },
		column: "TENANT", says: "NOT NULL without a default"},
	{name: "a stranger whose name needs quotes", vendors: pg, table: func(v string) *layout { return ours(v).with(`"Of ""it"`, "INT NOT NULL").value(`"Of ""it"`, "1") },
		column: `"Of ""it"`, says: "integer", keeps: true},
	{name: "a stranger whose name needs backquotes", vendors: mysqls, table: func(v string) *layout { return ours(v).with("`of ``it`", "INT NOT NULL").value("`of ``it`", "1") },
		column: "OF `IT", says: "int", keeps: true},
	{name: "a column quoted in upper case", vendors: pg, table: func(v string) *layout { return ours(v).without("HOLDER").with(`"HOLDER"`, "VARCHAR(255)") },
		column: "HOLDER", says: "no such column", keeps: true},

	{name: "no primary key", vendors: all, table: func(v string) *layout { return ours(v).keyed("") }, says: "no primary key"},
	{name: "no primary key keeps its rows", vendors: servers, table: func(v string) *layout { return ours(v).keyed("") }, says: "no primary key", keeps: true},
	{name: "only a unique index", vendors: all, table: func(v string) *layout { return ours(v).keyed("") },
		then: []string{"CREATE UNIQUE INDEX INT_LOCK_PK ON INT_LOCK (LOCK_KEY, REGION)"}, says: "no primary key"},
	{name: "another primary key", vendors: all, table: func(v string) *layout { return ours(v).keyed(", CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY)") },
		says: "PRIMARY KEY (LOCK_KEY)"},
	{name: "a longer primary key", vendors: servers, table: func(v string) *layout {
		return ours(v).with("TENANT", "VARCHAR(10) NOT NULL").value("TENANT", "'x'").keyed(", PRIMARY KEY (LOCK_KEY, REGION, TENANT)")
	}, says: "PRIMARY KEY (LOCK_KEY, REGION, TENANT)", keeps: true},
	{name: "a primary key of its own", vendors: mysqls, table: func(v string) *layout {
		return ours(v).with("ID", "BIGINT NOT NULL AUTO_INCREMENT").keyed(", PRIMARY KEY (ID), UNIQUE KEY uk (REGION, LOCK_KEY)")
	}, says: "PRIMARY KEY (ID)", keeps: true},
	{name: "a primary key of its own on Postgres", vendors: pg, table: func(v string) *layout {
		return ours(v).with("ID", "BIGSERIAL").keyed(", PRIMARY KEY (ID), UNIQUE (REGION, LOCK_KEY)")
	}, says: "PRIMARY KEY (ID)", keeps: true},
	{name: "a primary key of its own on SQLite", vendors: lite, table: func(v string) *layout {
		return ours(v).with("ID", "INTEGER PRIMARY KEY AUTOINCREMENT").keyed(", UNIQUE (REGION, LOCK_KEY)")
	}, says: "PRIMARY KEY (ID)"},
	{name: "a primary key on prefixes", vendors: mysqls, table: func(v string) *layout { return ours(v).keyed(", PRIMARY KEY (LOCK_KEY(20), REGION)") },
		says: "PRIMARY KEY (LOCK_KEY(20), REGION)", keeps: true},
	{name: "a deferrable primary key", vendors: pg, table: func(v string) *layout { return ours(v).keyed(", PRIMARY KEY (LOCK_KEY, REGION) DEFERRABLE") },
		says: "DEFERRABLE", keeps: true},
	{name: "another unique index", vendors: all, table: ours, then: []string{"CREATE UNIQUE INDEX one_each ON INT_LOCK (CLIENT_ID)"}, says: "one_each", keeps: true},
	{name: "another unique constraint", vendors: servers, table: func(v string) *layout {
		l := ours(v)
		return l.keyed(l.key + ", CONSTRAINT one_each UNIQUE (LOCK_KEY)")
	},
		says: "one_each", keeps: true},
	{name: "another unique constraint on SQLite", vendors: lite, table: func(v string) *layout { l := ours(v); return l.keyed(l.key + ", UNIQUE (CLIENT_ID)") },
		says: "unique index"},
	{name: "a unique index on an expression", vendors: []string{vendor.Postgres, vendor.MySQL, vendor.SQLite}, table: ours,
		then: []string{"CREATE UNIQUE INDEX one_each ON INT_LOCK ((lower(LOCK_KEY)))"}, says: "one_each", keeps: true},

	{name: "an index on the expiry", vendors: pg, table: ours, then: []string{"CREATE INDEX slow ON INT_LOCK (REGION, EXPIRED_AFTER)"},
		column: "EXPIRED_AFTER", says: "the index slow", keeps: true},
	{name: "an index that includes the expiry", vendors: pg, table: ours, then: []string{"CREATE INDEX slow ON INT_LOCK (REGION) INCLUDE (EXPIRED_AFTER)"},
		column: "EXPIRED_AFTER", says: "the index slow", keeps: true},
	{name: "an index on an expression of the expiry", vendors: pg, table: ours, then: []string{`CREATE INDEX "So slow" ON INT_LOCK (date_trunc('day', EXPIRED_AFTER))`},
		column: "EXPIRED_AFTER", says: `the index "So slow"`, keeps: true},
	{name: "an index with a condition on the expiry", vendors: pg, table: ours, then: []string{"CREATE INDEX slow ON INT_LOCK (REGION) WHERE EXPIRED_AFTER > '2020-01-01'"},
		column: "EXPIRED_AFTER", says: "the index slow", keeps: true},
	{name: "a unique constraint with the expiry", vendors: pg, table: func(v string) *layout {
		l := ours(v)
		return l.keyed(l.key + ", CONSTRAINT slow UNIQUE (LOCK_KEY, REGION, EXPIRED_AFTER)")
	},
		column: "EXPIRED_AFTER", says: "the index slow", keeps: true},

	{name: "MyISAM", vendors: mysqls, table: func(v string) *layout { l := ours(v); l.suffix = " ENGINE=MyISAM"; return l }, says: "MyISAM", keeps: true},
	{name: "an unlogged table", vendors: pg, table: ours, then: []string{"ALTER TABLE INT_LOCK SET UNLOGGED"}, says: "unlogged", keeps: true},
	{name: "a system-versioned table", vendors: maria, table: ours, then: []string{"ALTER TABLE INT_LOCK ADD SYSTEM VERSIONING"}, says: "system-versioned", keeps: true},
	{name: "everything at once", vendors: all, table: func(v string) *layout {
		return spring6(v).with("CREATED_DATE", "VARCHAR(40) NOT NULL").with("TENANT", "VARCHAR(10) NOT NULL").value("TENANT", "'x'").keyed("")
	}, column: "CREATED_DATE", says: "40"},
	{name: "many at once", vendors: servers, table: func(v string) *layout {
		return spring6(v).with("TENANT", "VARCHAR(10) NOT NULL").value("TENANT", "'x'").with("CLIENT_ID", "CHAR(10)").with("HOLDER", "CHAR(10)").keyed(", PRIMARY KEY (TENANT)")
	}, column: "EXPIRED_AFTER", says: "Spring Integration 6.5", keeps: true},
}

// Each fault is found and named, Apply refuses it without changing anything,
// and the statements that the error proposes really mend it.
func TestEveryFaultIsFoundAndItsFixMendsIt(t *testing.T) {
	for _, name := range vendor.All() {
		t.Run(name, func(t *testing.T) {
			db := applied(t, name)
			db.SetMaxOpenConns(1)
			for _, f := range faults {
				if !slices.Contains(f.vendors, name) {
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					exec(t, db, "DROP TABLE IF EXISTS INT_LOCK")
					exec(t, db, append(f.table(name).create(), f.then...)...)

					mismatch := requireMismatch(t, schema.Check(t.Context(), db, "INT_"))
					requireFinding(t, mismatch, f.column, f.says)
					t.Log(mismatch)
					if again := requireMismatch(t, schema.Apply(t.Context(), db, "INT_")); again.Error() != mismatch.Error() {
						t.Errorf("Apply said\n%v\nand Check\n%v", again, mismatch)
					}
					if again := requireMismatch(t, schema.Check(t.Context(), db, "INT_")); again.Error() != mismatch.Error() {
						t.Errorf("after Apply, Check said\n%v\nand before\n%v", again, mismatch)
					}

					exec(t, db, mismatch.Statements()...)
					if err := schema.Check(t.Context(), db, "INT_"); err != nil {
						t.Fatalf("after its own fix %q: %v", mismatch.Statements(), err)
					}
					if f.keeps {
						if got := count(t, db); got != 1 {
							t.Errorf("%d rows after the fix; want 1", got)
						}
					}
					exec(t, db, "DELETE FROM INT_LOCK", spring(name, springInsert))
				})
			}
		})
	}
}

// applied is a database with all that Apply makes.
func applied(t *testing.T, name string) *testdb.DB {
	t.Helper()
	db := testdb.Open(t, name)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	return db
}

func requireMismatch(t *testing.T, err error) *schema.MismatchError {
	t.Helper()
	var mismatch *schema.MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, schema.ErrMismatch) || errors.Is(err, schema.ErrMissing) {
		t.Fatalf("got %v; want a MismatchError", err)
	}
	if len(mismatch.Problems) == 0 {
		t.Fatalf("got %#v; want problems", mismatch)
	}
	return mismatch
}

func requireFinding(t *testing.T, mismatch *schema.MismatchError, column, says string) {
	t.Helper()
	for _, p := range mismatch.Problems {
		if p.Object == "" || p.Found == "" || p.Want == "" {
			t.Errorf("an empty finding: %#v", p)
		}
		if p.Fix == "" || !strings.HasSuffix(p.Fix, ";") {
			t.Errorf("%s: the fix is %q; want statements", p.Column, p.Fix)
		}
		for _, part := range []string{p.Column, p.Found, p.Want, p.Object + " does not fit:"} {
			if !strings.Contains(mismatch.Error(), part) {
				t.Errorf("the text lacks %q:\n%v", part, mismatch)
			}
		}
	}
	if !slices.ContainsFunc(mismatch.Problems, func(p schema.Problem) bool {
		return p.Column == column && strings.Contains(p.Found+"\n"+p.Want, says)
	}) {
		t.Errorf("no finding about column %q says %q:\n%v", column, says, mismatch)
	}
}

func count(t *testing.T, db *testdb.DB) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM INT_LOCK").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
