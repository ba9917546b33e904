package schema_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// What works must not be refused: the table may be older than us and shared.
func TestTablesThatFit(t *testing.T) {
	fits := []struct {
		name    string
		vendors []string
		table   func(name string) *layout
		then    []string
	}{
		{"Spring 7's own script and our columns", all, ours, nil},
		{"Spring 7's own script and three ALTERs", []string{vendor.Postgres, vendor.SQLite}, spring7, []string{
			"ALTER TABLE INT_LOCK ADD COLUMN ATTEMPT BIGINT", "ALTER TABLE INT_LOCK ADD COLUMN HOLDER VARCHAR(255)", "ALTER TABLE INT_LOCK ADD COLUMN LOCK_NAME VARCHAR(255)"}},
		// The database's default character set may be latin1.
		{"Spring 7's own script and three ALTERs, in UTF-8", mysqls, spring7, []string{
			"ALTER TABLE INT_LOCK ADD COLUMN ATTEMPT BIGINT, ADD COLUMN HOLDER VARCHAR(255) CHARACTER SET utf8mb4, ADD COLUMN LOCK_NAME VARCHAR(255) CHARACTER SET utf8mb4"}},
		{"the key the other way round", all, func(v string) *layout { return ours(v).keyed(", PRIMARY KEY (REGION, LOCK_KEY)") }, nil},
		{"longer columns", all, func(v string) *layout {
			return ours(v).with("LOCK_KEY", "VARCHAR(60) NOT NULL").with("REGION", "VARCHAR(200) NOT NULL").with("CLIENT_ID", "VARCHAR(60)")
		}, nil},
		{"names without a limit", all, func(v string) *layout {
			charset := ""
			if slices.Contains(mysqls, v) {
				charset = " CHARACTER SET utf8mb4"
			}
			return ours(v).with("HOLDER", "TEXT"+charset).with("LOCK_NAME", "TEXT"+charset)
		}, nil},
		{"Postgres text", pg, func(v string) *layout {
			return ours(v).with("LOCK_KEY", "TEXT NOT NULL").with("REGION", "VARCHAR NOT NULL")
		}, nil},
		{"SQLite with a server's types", lite, func(v string) *layout {
			return ours(v).with("CREATED_DATE", "BIGINT NOT NULL").with("LOCK_KEY", "CHAR(36) NOT NULL").with("ATTEMPT", "BIGINT")
		}, nil},
		{"our columns with defaults", servers, func(v string) *layout { return ours(v).with("ATTEMPT", "BIGINT NOT NULL DEFAULT 0") }, nil},
		{"strangers that an INSERT need not name", all, func(v string) *layout {
			return ours(v).with("TENANT", "VARCHAR(10) NOT NULL DEFAULT 'x'").with("REMARK", "VARCHAR(10)")
		}, nil},
		{"a stranger that counts", mysqls, func(v string) *layout {
			l := ours(v).with("ID", "BIGINT NOT NULL AUTO_INCREMENT")
			return l.keyed(l.key + ", KEY (ID)")
		}, nil},
		{"a stranger that counts and is unique", mysqls, func(v string) *layout {
			l := ours(v).with("ID", "BIGINT NOT NULL AUTO_INCREMENT")
			return l.keyed(l.key + ", UNIQUE KEY (ID)")
		}, nil},
		{"a stranger that counts, on Postgres", pg, func(v string) *layout { return ours(v).with("ID", "BIGINT GENERATED ALWAYS AS IDENTITY") }, nil},
		{"a generated stranger", []string{vendor.MySQL, vendor.Postgres, vendor.SQLite}, func(v string) *layout {
			return ours(v).with("SHOUT", "VARCHAR(255) GENERATED ALWAYS AS (upper(HOLDER)) STORED")
		}, nil},
		{"an expression as default", []string{vendor.MySQL, vendor.MariaDB}, func(v string) *layout { return ours(v).with("TENANT", "VARCHAR(40) NOT NULL DEFAULT (UUID())") }, nil},
		{"an index on the client", all, ours, []string{"CREATE INDEX by_client ON INT_LOCK (CLIENT_ID)"}},
		{"an index on the expiry where it does no harm", []string{vendor.MySQL, vendor.MariaDB, vendor.SQLite}, ours, []string{"CREATE INDEX by_expiry ON INT_LOCK (EXPIRED_AFTER)"}},
		{"a second unique index on the key", all, ours, []string{"CREATE UNIQUE INDEX again ON INT_LOCK (REGION, LOCK_KEY)"}},
		{"a partitioned table", pg, func(v string) *layout { l := ours(v); l.suffix = " PARTITION BY HASH (REGION)"; return l }, nil},
	}
	for _, name := range vendor.All() {
		t.Run(name, func(t *testing.T) {
			db := applied(t, name)
			for _, f := range fits {
				if !slices.Contains(f.vendors, name) {
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					exec(t, db, "DROP TABLE IF EXISTS INT_LOCK")
					exec(t, db, f.table(name).create()[0])
					exec(t, db, f.then...)
					if err := schema.Check(t.Context(), db, "INT_"); err != nil {
						t.Error(err)
					}
					if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

func TestWhatIsNoLockTableIsLeftAlone(t *testing.T) {
	cases := []struct {
		name    string
		vendors []string
		make    []string
		column  string
		says    string
	}{
		{"a view", all, []string{"CREATE TABLE other (LOCK_KEY CHAR(36), REGION VARCHAR(100))", "CREATE VIEW INT_LOCK AS SELECT * FROM other"}, "", "a view"},
		{"a materialized view", pg, []string{"CREATE MATERIALIZED VIEW INT_LOCK AS SELECT 1 AS LOCK_KEY"}, "", "a materialized view"},
		{"a foreign table", pg, []string{"CREATE FOREIGN DATA WRAPPER nothing", "CREATE SERVER far FOREIGN DATA WRAPPER nothing",
			"CREATE FOREIGN TABLE INT_LOCK (LOCK_KEY CHAR(36), REGION VARCHAR(100)) SERVER far"}, "", "a foreign table"},
		{"a sequence", []string{vendor.Postgres, vendor.MariaDB}, []string{"CREATE SEQUENCE INT_LOCK"}, "", "a sequence"},
		{"somebody else's table", all, []string{"CREATE TABLE INT_LOCK (ID INT PRIMARY KEY, COMBINATION VARCHAR(10) NOT NULL)"}, "LOCK_KEY", "not a lock table"},
		{"a virtual table", lite, []string{"CREATE VIRTUAL TABLE INT_LOCK USING fts5(LOCK_KEY, REGION)"}, "", "a virtual table"},
	}
	for _, c := range cases {
		for _, name := range c.vendors {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				db := testdb.Open(t, name)
				exec(t, db, c.make...)
				for op, err := range map[string]error{
					"check": schema.Check(t.Context(), db, "INT_"),
					"apply": schema.Apply(t.Context(), db, "INT_"),
					"drop":  schema.Drop(t.Context(), db, "INT_"),
				} {
					mismatch := requireMismatch(t, err)
					p := mismatch.Problems[0]
					if p.Object != "INT_LOCK" || p.Column != c.column || !strings.Contains(p.Found+p.Want, c.says) {
						t.Errorf("%s: %v; want a finding that says %q", op, err, c.says)
					}
					if s := mismatch.Statements(); len(s) > 0 {
						t.Errorf("%s proposes %q; want no statement about what is not ours", op, s)
					}
				}
			})
		}
	}
}

func TestTemporaryTablesAreRefused(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.SQLite} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			db.SetMaxOpenConns(1) // a temporary table is its connection's
			exec(t, db, strings.Replace(ours(name).create()[0], "CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
			mismatch := requireMismatch(t, schema.Check(t.Context(), db, "INT_"))
			requireFinding(t, mismatch, "", "temporary")
			exec(t, db, mismatch.Statements()...)
			if err := schema.Check(t.Context(), db, "INT_"); err != nil {
				t.Error(err)
			}
			if err := schema.Check(t.Context(), db.Again(t), "INT_"); err != nil {
				t.Errorf("on another connection: %v", err)
			}
		})
	}
}

// The fixes move values, and a shifted time would free or prolong a lock.
func TestFixesKeepTheInstant(t *testing.T) {
	const want = "2026-01-02 03:04:15.678"
	tables := map[string]map[string]*layout{
		vendor.Postgres: {
			"timestamptz": ours(vendor.Postgres).with("EXPIRED_AFTER", "TIMESTAMPTZ NOT NULL").value("EXPIRED_AFTER", "'"+want+"Z'"),
			"Spring 6.5":  spring6(vendor.Postgres), // CREATED_DATE and 10 s
		},
		vendor.MySQL: {
			"TIMESTAMP(6)": ours(vendor.MySQL).with("EXPIRED_AFTER", "TIMESTAMP(6) NOT NULL"),
			"Spring 6.5":   spring6(vendor.MySQL),
		},
		vendor.MariaDB: {
			"TIMESTAMP(6)": ours(vendor.MariaDB).with("EXPIRED_AFTER", "TIMESTAMP(6) NOT NULL"),
			"Spring 6.5":   spring6(vendor.MariaDB),
		},
	}
	for name, cases := range tables {
		t.Run(name, func(t *testing.T) {
			zone := map[string]string{"time_zone": "'-05:00'"}
			if name == vendor.Postgres {
				zone = map[string]string{"TimeZone": "America/New_York"}
			}
			db := testdb.Open(t, name).With(t, zone)
			for label, table := range cases {
				exec(t, db, "DROP TABLE IF EXISTS INT_LOCK")
				exec(t, db, table.create()...)
				exec(t, db, requireMismatch(t, schema.Check(t.Context(), db, "INT_")).Statements()...)
				var got string
				if err := db.QueryRowContext(t.Context(), "SELECT CAST(EXPIRED_AFTER AS CHAR(23)) FROM INT_LOCK").Scan(&got); err != nil || got != want {
					t.Errorf("%s: EXPIRED_AFTER is %q, %v; want %q", label, got, err, want)
				}
			}
		})
	}
}

// A check that holds no connection while it asks for another, and that is
// quick enough to run at each start.
func TestCheckIsQuick(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(1)
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		const rounds = 20
		for range rounds {
			if err := schema.Check(t.Context(), db, "INT_"); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%v per check", (time.Since(start) / rounds).Round(10*time.Microsecond))
		if s := db.Stats(); s.InUse != 0 {
			t.Errorf("%d connections still in use", s.InUse)
		}
	})
}
