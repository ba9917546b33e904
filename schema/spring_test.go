package schema_test

import (
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// The shapes of Spring's statements, with :times for what its driver binds.
const (
	springInsert = "INSERT INTO INT_LOCK (REGION, LOCK_KEY, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER)" +
		" VALUES ('DEFAULT', 'acbd18db-4cc2-385c-adef-654fccc4a4d8', 'b7c1a4f6-97a7-4a0c-a6f0-1c4f7d2f1f10', :now, :later)"
	springUpdate = "UPDATE INT_LOCK SET CLIENT_ID = 'b7c1a4f6-97a7-4a0c-a6f0-1c4f7d2f1f10', EXPIRED_AFTER = :later" +
		" WHERE REGION = 'DEFAULT' AND LOCK_KEY = 'acbd18db-4cc2-385c-adef-654fccc4a4d8'" +
		" AND (CLIENT_ID = 'b7c1a4f6-97a7-4a0c-a6f0-1c4f7d2f1f10' OR EXPIRED_AFTER < :now)"
	springDelete = "DELETE FROM INT_LOCK WHERE REGION = 'DEFAULT' AND LOCK_KEY = 'acbd18db-4cc2-385c-adef-654fccc4a4d8'" +
		" AND CLIENT_ID = 'b7c1a4f6-97a7-4a0c-a6f0-1c4f7d2f1f10'"
)

func spring(name, statement string) string {
	now, later := "'2026-01-02 03:04:05.678901'", "'2026-01-02 03:04:15.678901'"
	if name == vendor.SQLite {
		now, later = "1767323045678", "1767323055678"
	}
	return strings.NewReplacer(":now", now, ":later", later).Replace(statement)
}

func TestSpringsStatementsWorkOnOurTable(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{springInsert, springUpdate, springDelete} {
			result, err := db.ExecContext(t.Context(), spring(db.Vendor, statement))
			if err != nil {
				t.Fatalf("%s\n%v", statement, err)
			}
			// The update changes nothing, which MySQL does not count.
			n, err := result.RowsAffected()
			if err != nil || n != 1 && statement != springUpdate {
				t.Errorf("%s\n%d rows, %v; want 1", statement, n, err)
			}
		}
	})
}

func TestKeysAreTakenLiterally(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		insert := spring(db.Vendor, springInsert)
		for _, row := range [][2]string{{"job", "r"}, {"Job", "r"}, {"job", "R"}} {
			exec(t, db, strings.NewReplacer("acbd18db-4cc2-385c-adef-654fccc4a4d8", row[0], "'DEFAULT'", "'"+row[1]+"'").Replace(insert))
		}
		if _, err := db.ExecContext(t.Context(), strings.NewReplacer("acbd18db-4cc2-385c-adef-654fccc4a4d8", "job", "'DEFAULT'", "'r'").Replace(insert)); err == nil {
			t.Error("the same key went in twice")
		}
	})
}

func TestNamesMayHoldAnyCharacter(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		exec(t, db, spring(db.Vendor, springInsert), "UPDATE INT_LOCK SET HOLDER = 'büro/7 😀', LOCK_NAME = '日本', ATTEMPT = 9223372036854775807")
		var holder, name string
		var attempt int64
		err := db.QueryRowContext(t.Context(), "SELECT HOLDER, LOCK_NAME, ATTEMPT FROM INT_LOCK").Scan(&holder, &name, &attempt)
		if err != nil || holder != "büro/7 😀" || name != "日本" || attempt != 9223372036854775807 {
			t.Errorf("got %q, %q, %d, %v", holder, name, attempt, err)
		}
	})
}
