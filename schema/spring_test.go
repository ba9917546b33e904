package schema_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

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

// Renewals are the bulk of all writes. On Postgres each must stay on its page
// and leave the index alone.
func TestRenewalsAreHOTUpdates(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	ctx := t.Context()
	if err := schema.Apply(ctx, db, "INT_"); err != nil {
		t.Fatal(err)
	}
	// Without autovacuum: HOT has to clean up after itself.
	exec(t, db, "ALTER TABLE INT_LOCK SET (autovacuum_enabled = false)", `
		INSERT INTO INT_LOCK SELECT md5(n::text)::uuid::text, 'DEFAULT', gen_random_uuid()::text,
			clock_timestamp() AT TIME ZONE 'UTC', clock_timestamp() AT TIME ZONE 'UTC', n, 'web-3/4711', 'order ' || n
		FROM generate_series(1, 100) n`)
	const renewals = 2000
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// One statement for a batch of locks, as a renewer sends it.
	for i := range renewals / 50 {
		_, err := conn.ExecContext(ctx, `UPDATE INT_LOCK SET EXPIRED_AFTER = clock_timestamp() AT TIME ZONE 'UTC' + INTERVAL '10 seconds' WHERE ATTEMPT % 2 = $1`, i%2)
		if err != nil {
			t.Fatal(err)
		}
	}
	// A session reports its counts when it has been idle for a while, or ends.
	deadline, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	var updates, hot int64
	for updates < renewals {
		if err := db.QueryRowContext(deadline, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'int_lock'").Scan(&updates, &hot); err != nil {
			t.Fatalf("the statistics say %d of %d updates: %v", updates, renewals, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if hot*100 < updates*99 {
		t.Errorf("%d of %d updates were HOT; want 99 %%", hot, updates)
	}
	t.Logf("%d of %d updates were HOT", hot, updates)
}
