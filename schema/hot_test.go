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
			db := testdb.Open(t, vendor.Postgres)
			for start := time.Now(); ; {
				if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
					t.Fatal(err)
				}
				// Without autovacuum: HOT has to clean up after itself.
				exec(t, db, "ALTER TABLE "+c.table+" SET (autovacuum_enabled = false)", c.fill)
				updates, held := runOnOneSession(t, db, c.update, c.statements)
				hot := countHOT(t, db, c.table, updates)
				t.Logf("%d of %d updates were HOT", hot, updates)
				switch {
				case hot*1000 >= updates*995:
					return
				case !held:
					t.Fatal("want 99.5 %")
				case time.Since(start) > 10*time.Second:
					t.Skip("for 10 s there was no round without a transaction of somebody else on this server, which keeps dead rows alive")
				}
				exec(t, db, "DROP TABLE "+c.table)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// runOnOneSession returns how many rows the statements have updated. held tells
// whether a transaction of somebody else was seen meanwhile: until it ends, no
// session of the server, in whichever database, cleans up what died after it
// began. The session is ended, as it reports its counts then.
func runOnOneSession(t *testing.T, db *testdb.DB, statement string, times int) (updates int64, held bool) {
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
		var open bool
		const ask = "SELECT txid_snapshot_xmin(s) < txid_snapshot_xmax(s) FROM txid_current_snapshot() s"
		if err := conn.QueryRowContext(t.Context(), ask).Scan(&open); err != nil {
			t.Fatal(err)
		}
		held = held || open
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return updates, held
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
