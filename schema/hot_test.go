package schema_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// Renewals are the bulk of all writes, and the marks of the fence table are
// written with the data. On Postgres each update must stay on its page and
// leave the index alone.
func TestUpdatesAreHOT(t *testing.T) {
	for _, c := range []struct {
		name, table, fill, update string
		statements                int
	}{
		{
			// One statement for a batch of locks, as a renewer sends it.
			name: "renewals", table: "INT_LOCK", statements: 40,
			fill: `INSERT INTO INT_LOCK SELECT md5(n::text)::uuid::text, 'DEFAULT', gen_random_uuid()::text,
				clock_timestamp() AT TIME ZONE 'UTC', clock_timestamp() AT TIME ZONE 'UTC', n, 'web-3/4711', 'order ' || n
				FROM generate_series(1, 100) n`,
			update: "UPDATE INT_LOCK SET EXPIRED_AFTER = clock_timestamp() AT TIME ZONE 'UTC' + INTERVAL '10 seconds' WHERE ATTEMPT % 2 = $1 % 2",
		},
		{
			name: "marks", table: "INT_LOCK_FENCE", statements: 200,
			fill: "INSERT INTO INT_LOCK_FENCE SELECT 'customer/' || n, n FROM generate_series(0, 3999) n",
			update: "UPDATE INT_LOCK_FENCE SET TOKEN = TOKEN + 1" +
				" WHERE RESOURCE IN (SELECT 'customer/' || (hashint8($1 * 40 + k) & 4095) % 4000 FROM generate_series(1, 40) k)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := testdb.Private(t, vendor.Postgres).Open(t)
			if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
				t.Fatal(err)
			}
			// Without autovacuum: HOT has to clean up after itself. And alone:
			// until a transaction ends, no session of the server, in whichever
			// database, cleans up what died after it began.
			exec(t, db, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()", c.fill)
			updates := runOnOneSession(t, db, c.update, c.statements)
			hot := countHOT(t, db, c.table, updates)
			t.Logf("%d of %d updates were HOT", hot, updates)
			if hot*1000 < updates*995 {
				t.Error("want 99.5 %")
			}
		})
	}
}

// runOnOneSession returns how many rows the statements have updated. The
// session is ended, as it reports its counts then.
func runOnOneSession(t *testing.T, db *testdb.DB, statement string, times int) (updates int64) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range times {
		result, err := conn.ExecContext(t.Context(), statement, i)
		if err != nil {
			t.Fatal(err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			t.Fatal(err)
		}
		updates += n
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return updates
}

func countHOT(t *testing.T, db *testdb.DB, table string, want int64) (hot int64) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for updates := int64(0); updates < want; time.Sleep(20 * time.Millisecond) {
		err := db.QueryRowContext(deadline, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = lower($1)", table).Scan(&updates, &hot)
		if err != nil {
			t.Fatalf("the statistics say %d of %d updates: %v", updates, want, err)
		}
	}
	return hot
}
