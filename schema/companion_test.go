package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

var (
	sequences = []string{vendor.Postgres, vendor.MariaDB}
	my        = []string{vendor.MySQL}
)

// companion is a token source or fence table, and what must be said about it.
type companion struct {
	name    string
	vendors []string
	object  string // INT_LOCK_TOKEN or INT_LOCK_FENCE
	then    []string
	column  string
	says    string // empty: it fits
	byHand  bool   // there is no statement that mends it
	mute    bool   // no token can be drawn before it is mended
}

const (
	source    = "INT_LOCK_TOKEN"
	fence     = "INT_LOCK_FENCE"
	mysqlKeys = "LOCK_KEY CHAR(36) NOT NULL, REGION VARCHAR(100) NOT NULL"
)

var companions = []companion{
	{name: "a cache", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN CACHE 20"}, says: "CACHE 20"},
	{name: "the reason against a cache", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN CACHE 20"}, says: "a later grant could get the lower token"},
	{name: "a cache by default", vendors: maria, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN"}, says: "CACHE 1000"},
	{name: "a cache of one", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN CACHE 1"}},
	{name: "a start of its own", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN START WITH 100000 CACHE 1 MAXVALUE 9000000000000000000"}},
	{name: "steps of ten", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY 10 CACHE 1"}},
	{name: "a cycle", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN CACHE 1 CYCLE"}, says: "must not start over"},
	{name: "falling", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY -1 CACHE 1"}, says: "must rise"},
	{name: "falling from above", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY -1 MAXVALUE 50 START WITH 50 CACHE 1"}, says: "must rise"},
	{name: "falling over and over", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY -1 MINVALUE 1 MAXVALUE 9 START WITH 1 CACHE 1 CYCLE"}, says: "must rise"},
	{name: "Galera's numbers", vendors: maria, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY 0 NOCACHE"}, says: "each node"},
	{name: "a near end", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN MAXVALUE 1000 CACHE 1"}, says: "MAXVALUE 1000"},
	{name: "a small type", vendors: pg, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN AS INTEGER"}, says: "the type integer"},
	{name: "a smaller type", vendors: pg, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN AS SMALLINT MAXVALUE 100"}, says: "the type smallint"},
	{name: "all at once", vendors: sequences, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN INCREMENT BY -2 MINVALUE -50 MAXVALUE 50 CACHE 5 CYCLE"}, says: "CACHE 5"},
	{name: "MyISAM", vendors: maria, object: source, then: []string{"CREATE SEQUENCE INT_LOCK_TOKEN NOCACHE ENGINE=MyISAM"}, says: "MyISAM"},
	{name: "a temporary sequence", vendors: pg, object: source, then: []string{"CREATE TEMPORARY SEQUENCE INT_LOCK_TOKEN"}, says: "temporary", byHand: true},
	{name: "an unlogged sequence", vendors: pg, object: source, then: []string{"CREATE UNLOGGED SEQUENCE INT_LOCK_TOKEN"}, says: "unlogged"},
	{name: "a table instead of a sequence", vendors: sequences, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (TOKEN BIGINT)"}, says: "a sequence; drop or rename it", byHand: true},
	{name: "a view", vendors: all, object: source, then: []string{"CREATE VIEW INT_LOCK_TOKEN AS SELECT 1 AS TOKEN"}, says: "a view", byHand: true},

	{name: "no AUTO_INCREMENT", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL, PRIMARY KEY (LOCK_KEY, REGION), KEY (TOKEN))"},
		column: "TOKEN", says: "AUTO_INCREMENT", mute: true},
	{name: "no AUTO_INCREMENT and no index", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT, PRIMARY KEY (LOCK_KEY, REGION))"},
		column: "TOKEN", says: "AUTO_INCREMENT", mute: true},
	{name: "no AUTO_INCREMENT, and the primary key of another", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL, PRIMARY KEY (TOKEN))"},
		column: "TOKEN", says: "AUTO_INCREMENT", mute: true},
	{name: "another counter", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL, ID BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (LOCK_KEY, REGION), KEY (ID))"},
		column: "TOKEN", says: "AUTO_INCREMENT", byHand: true},
	{name: "a small counter", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN INT NOT NULL AUTO_INCREMENT, PRIMARY KEY (LOCK_KEY, REGION), KEY (TOKEN))"},
		column: "TOKEN", says: "int"},
	{name: "the primary key on the counter", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (TOKEN))"},
		says: "the table grows"},
	{name: "no primary key", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL AUTO_INCREMENT, KEY (TOKEN))"}, says: "no primary key"},
	{name: "a unique counter", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (REGION, LOCK_KEY), UNIQUE KEY (TOKEN))"}},
	{name: "MyISAM", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (" + mysqlKeys + ", TOKEN BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (LOCK_KEY, REGION), KEY (TOKEN)) ENGINE=MyISAM"},
		says: "MyISAM"},
	{name: "a short key", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (LOCK_KEY CHAR(30) NOT NULL, REGION VARCHAR(100) NOT NULL, TOKEN BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (LOCK_KEY, REGION), KEY (TOKEN))"},
		column: "LOCK_KEY", says: "char(30)", mute: true},
	{name: "one counter for all", vendors: my, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (ID INT PRIMARY KEY, TOKEN BIGINT NOT NULL)"}, column: "LOCK_KEY", says: "not a token source", byHand: true},

	{name: "a nullable counter", vendors: lite, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (ID INTEGER PRIMARY KEY, TOKEN INTEGER)"}, column: "TOKEN", says: "NULL allowed", byHand: true},
	{name: "a counter of text", vendors: lite, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (ID INTEGER PRIMARY KEY, TOKEN TEXT NOT NULL)"}, column: "TOKEN", says: "by hand", byHand: true},
	{name: "more than one row", vendors: lite, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (ID INTEGER, TOKEN INTEGER NOT NULL)"}, says: "one row", byHand: true},
	{name: "without its check", vendors: lite, object: source, then: []string{"CREATE TABLE INT_LOCK_TOKEN (ID BIGINT NOT NULL PRIMARY KEY, TOKEN BIGINT NOT NULL)"}},

	{name: "a small token", vendors: servers, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE DROP COLUMN TOKEN", "ALTER TABLE INT_LOCK_FENCE ADD COLUMN TOKEN INT NOT NULL"},
		column: "TOKEN", says: "int"},
	{name: "no token", vendors: servers, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE DROP COLUMN TOKEN", "ALTER TABLE INT_LOCK_FENCE ADD COLUMN TOKEN BIGINT"},
		column: "TOKEN", says: "no write would be refused"},
	{name: "short names", vendors: pg, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ALTER COLUMN RESOURCE TYPE VARCHAR(64)"}, column: "RESOURCE", says: "64"},
	{name: "short names", vendors: mysqls, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE MODIFY RESOURCE VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}, column: "RESOURCE", says: "64"},
	{name: "names in a collation of the language", vendors: mysqls, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE MODIFY RESOURCE VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"},
		column: "RESOURCE", says: "utf8mb4_unicode_ci"},
	{name: "names whose blanks do not count", vendors: mysqls, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE MODIFY RESOURCE VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"},
		column: "RESOURCE", says: "two names may count as one"},
	{name: "longer names", vendors: pg, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ALTER COLUMN RESOURCE TYPE TEXT"}},
	{name: "no primary key", vendors: pg, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE DROP CONSTRAINT INT_LOCK_FENCE_PK"}, says: "no primary key"},
	{name: "no primary key", vendors: mysqls, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE DROP PRIMARY KEY"}, says: "no primary key"},
	{name: "an index on the token", vendors: pg, object: fence, then: []string{"CREATE INDEX slow ON INT_LOCK_FENCE (TOKEN)"}, column: "TOKEN", says: "the index slow"},
	{name: "an index on the token where it does no harm", vendors: mysqls, object: fence, then: []string{"CREATE INDEX slow ON INT_LOCK_FENCE (TOKEN)"}},
	{name: "unique tokens", vendors: mysqls, object: fence, then: []string{"CREATE UNIQUE INDEX one_each ON INT_LOCK_FENCE (TOKEN)"}, says: "one_each"},
	{name: "unique tokens", vendors: lite, object: fence, then: []string{"CREATE UNIQUE INDEX one_each ON INT_LOCK_FENCE (TOKEN)"}, says: "one_each"},
	{name: "an unlogged table", vendors: pg, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE SET UNLOGGED"}, says: "unlogged"},
	{name: "an engine in memory", vendors: mysqls, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ENGINE=MEMORY"}, says: "MEMORY"},
	{name: "versions", vendors: maria, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ADD SYSTEM VERSIONING"}, says: "system-versioned"},
	{name: "a stranger", vendors: servers, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ADD COLUMN TENANT INT NOT NULL"}, column: "TENANT", says: "NOT NULL without a default"},
	{name: "a stranger that may stay", vendors: all, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE ADD COLUMN REMARK VARCHAR(10)"}},
	{name: "another table", vendors: all, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE RENAME COLUMN RESOURCE TO THING"}, column: "RESOURCE", says: "not a fence table", byHand: true},
	{name: "no token column", vendors: servers, object: fence, then: []string{"ALTER TABLE INT_LOCK_FENCE DROP COLUMN TOKEN"}, column: "TOKEN", says: "not a fence table", byHand: true},
}

// Each fault is named with its object, Apply refuses it without changing
// anything, and the fix mends it without letting a token go backwards.
func TestCompanionsThatDoNotFit(t *testing.T) {
	for _, c := range companions {
		for _, name := range c.vendors {
			t.Run(c.name+"/"+c.object+"/"+name, func(t *testing.T) {
				db := applied(t, name)
				db.SetMaxOpenConns(1)
				if c.object == source {
					removeCompanions(t, db, "INT_")
					text, _ := schema.Script(name, "INT_")
					exec(t, db, schema.Statements(text)[2])
				}
				exec(t, db, c.then...)
				exec(t, db, spring(name, springInsert))

				err := schema.Check(t.Context(), db, "INT_")
				if c.says == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				mismatch := requireMismatch(t, err)
				t.Log(mismatch)
				if !slices.ContainsFunc(mismatch.Problems, func(p schema.Problem) bool {
					return p.Column == c.column && strings.Contains(p.Found+"\n"+p.Want, c.says)
				}) {
					t.Errorf("no finding about column %q says %q", c.column, c.says)
				}
				for _, p := range mismatch.Problems {
					if p.Object != c.object || (p.Fix == "") != c.byHand {
						t.Errorf("%+v; want a finding about %s, with a fix: %v", p, c.object, !c.byHand)
					}
				}
				if again := requireMismatch(t, schema.Apply(t.Context(), db, "INT_")); again.Error() != mismatch.Error() {
					t.Errorf("Apply said\n%v\nand Check\n%v", again, mismatch)
				}
				if c.byHand {
					return
				}

				before := int64(0)
				if c.object == source && !c.mute {
					for range 3 { // what falls is highest at first
						before = max(before, draw(t, db, name))
					}
				}
				exec(t, db, mismatch.Statements()...)
				if err := schema.Check(t.Context(), db, "INT_"); err != nil {
					t.Fatalf("after its own fix %q: %v", mismatch.Statements(), err)
				}
				for range 2 {
					after := draw(t, db, name)
					if after <= before {
						t.Errorf("token %d after %d", after, before)
					}
					before = after
				}
				exec(t, db, "INSERT INTO INT_LOCK_FENCE (RESOURCE, TOKEN) VALUES ('a', 9223372036854775807)")
			})
		}
	}
}
