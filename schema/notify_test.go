package schema_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// A row that somebody else deletes, with plain SQL, notifies those who said that
// they wait for its key, and nobody else.
func TestNotifyTrigger(t *testing.T) {
	for _, prefix := range []string{"INT_", "app.MY_"} {
		db := testdb.Open(t, vendor.Postgres)
		exec := func(query string) {
			t.Helper()
			if _, err := db.Exec(query); err != nil {
				t.Fatal(err)
			}
		}
		exec("CREATE SCHEMA app")
		ctx := context.Background()
		if err := schema.ApplyNotify(ctx, db, prefix); err == nil {
			t.Error("a trigger on a table that is not there")
		}
		if err := schema.Apply(ctx, db, prefix); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 3 { // it may be run again, and at the same time
			all.Go(func() {
				if err := schema.ApplyNotify(ctx, db, prefix); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := schema.Check(ctx, db, prefix); err != nil {
			t.Errorf("with the trigger: %v", err)
		}
		notes := make(chan *pq.Notification, 10)
		conn, err := pq.NewListenerConn(db.DSN, notes)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Listen(vendor.WaitChannel); err != nil {
			t.Fatal(err)
		}
		table := vendor.Table(prefix)
		insert := fmt.Sprintf("INSERT INTO %s (LOCK_KEY, REGION, CREATED_DATE, EXPIRED_AFTER) VALUES ('job', 'DEFAULT', now(), now())", table)
		exec(insert)
		exec("DELETE FROM " + table)
		exec(insert)
		if _, err := conn.ExecSimpleQuery(fmt.Sprintf(
			"SELECT pg_advisory_lock_shared(%d, get_byte(sha256('job'), 0) %% %d)", vendor.WaitClass, vendor.WaitBuckets)); err != nil {
			t.Fatal(err)
		}
		exec("DELETE FROM " + table)
		select {
		case n := <-notes:
			if n.Extra != "job" {
				t.Errorf("notified of %q", n.Extra)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("not notified")
		}
		if len(notes) != 0 {
			t.Error("notified of a key that nobody waited for")
		}
		if err := schema.Drop(ctx, db, prefix); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := db.QueryRow("SELECT count(*) FROM pg_proc WHERE proname LIKE '%_notify' AND pronamespace IN ('public'::regnamespace, 'app'::regnamespace)").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d functions are left, %v", left, err)
		}
	}
}

func TestNotifyScript(t *testing.T) {
	text, err := schema.NotifyScript("app.MY_")
	if err != nil || !strings.Contains(text, "app.MY_LOCK_NOTIFY()") || strings.Contains(text, "INT_LOCK") {
		t.Errorf("%v: %s", err, text)
	}
	for _, want := range []string{fmt.Sprint(vendor.WaitClass), fmt.Sprintf("%% %d;", vendor.WaitBuckets), "'" + vendor.WaitChannel + "'"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the script, which then does not agree with repository.WithNotify", want)
		}
	}
	for _, name := range []string{vendor.MySQL, vendor.SQLite} {
		if err := schema.ApplyNotify(t.Context(), testdb.Open(t, name), "INT_"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
