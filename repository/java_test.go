package repository_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// TestJavaRows has a Spring service on the same table: it names neither our
// columns nor an attempt, and its rows exclude ours and the other way round.
func TestJavaRows(t *testing.T) {
	for _, spring6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "Spring 7", true: "Spring 6"}[spring6], func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.DB) { javaRows(t, db, spring6) })
		})
	}
}

func javaRows(t *testing.T, db *testdb.DB, spring6 bool) {
	var opts []repository.Option
	columns, expires := "CREATED_DATE, EXPIRED_AFTER", "EXPIRED_AFTER"
	if spring6 {
		createSpring6Table(t, db)
		opts = append(opts, repository.WithSpring6Layout(spring6TTL))
		columns, expires = "CREATED_DATE", "CREATED_DATE"
	} else if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	repo, err := repository.New(t.Context(), db.DB, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	// at is the database's UTC time plus so many seconds.
	at := func(seconds int) string {
		switch db.Vendor {
		case vendor.Postgres:
			return fmt.Sprintf("(clock_timestamp() AT TIME ZONE 'UTC' + INTERVAL '%d seconds')", seconds)
		case vendor.SQLite:
			return fmt.Sprintf("CAST(unixepoch('subsec') * 1000 + %d AS INTEGER)", seconds*1000)
		}
		return fmt.Sprintf("(UTC_TIMESTAMP(6) + INTERVAL %d SECOND)", seconds)
	}
	// javaAcquire is Spring's: update what is mine or expired, else insert.
	javaAcquire := func(key, id string) bool {
		t.Helper()
		end, now := at(60), at(0)
		if spring6 { // expired is CREATED_DATE < now - ttl
			end, now = at(0), at(-10)
		}
		result, err := db.Exec(fmt.Sprintf("UPDATE INT_LOCK SET CLIENT_ID = '%s', %s = %s WHERE REGION = 'DEFAULT' AND LOCK_KEY = '%s' AND (CLIENT_ID = '%s' OR %s < %s)",
			id, expires, end, key, id, expires, now))
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := result.RowsAffected(); n > 0 {
			return true
		}
		dates := now + ", " + end
		if spring6 {
			dates = end
		}
		_, err = db.Exec(fmt.Sprintf("INSERT INTO INT_LOCK (REGION, LOCK_KEY, CLIENT_ID, %s) VALUES ('DEFAULT', '%s', '%s', %s)", columns, key, id, dates))
		return err == nil
	}
	request := func(key string) repository.Request {
		return repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: time.Minute}
	}
	try := func(req repository.Request) repository.Outcome {
		t.Helper()
		out, err := repo.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	// A Java holder, also one with our client id, is "held".
	for _, id := range []string{"java", repo.ClientID()} {
		key := "java-" + id[:4]
		if !javaAcquire(key, id) {
			t.Fatal("Java did not get a free key")
		}
		if out := try(request(key)); out.Acquired || out.Remaining <= 0 {
			t.Errorf("the lock of Java's %s: %+v, want held", id, out)
		}
		expire(t, db, spring6, "DEFAULT", key)
		req := request(key)
		if out := try(req); !out.Acquired {
			t.Errorf("an expired lock of Java's: %+v, want acquired", out)
		}
		if ok, err := repo.Delete(t.Context(), req.Lease()); err != nil || !ok {
			t.Errorf("delete = %v, %v", ok, err)
		}
	}

	// Ours excludes Java, until it has expired. Java's update leaves our
	// columns as they were: they must not make its lock look like ours.
	req := request("go")
	try(req)
	if javaAcquire("go", "java") {
		t.Error("Java took a live lock of ours")
	}
	expire(t, db, spring6, "DEFAULT", "go")
	if !javaAcquire("go", "java") {
		t.Error("Java did not get our expired lock")
	}
	if out := try(req); out.Acquired || out.Holder != "" {
		t.Errorf("our old attempt and Java's lock: %+v, want held, and not by us", out)
	}
	if got, err := repo.Renew(t.Context(), []repository.Lease{req.Lease()}, time.Minute); err != nil || got[0].State != repository.LeaseTaken {
		t.Errorf("renew = %v, %v, want it taken", got, err)
	}
	if ok, err := repo.Delete(t.Context(), req.Lease()); err != nil || ok {
		t.Errorf("delete = %v, %v, want lost", ok, err)
	}
	list, err := repo.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ClientID != "java" || list[0].Holder != "" {
		t.Errorf("List = %+v, %v", list, err)
	}

	// A row nobody owns: Java's column is nullable.
	exec(t, db.DB, "UPDATE INT_LOCK SET CLIENT_ID = NULL, ATTEMPT = NULL, HOLDER = NULL, LOCK_NAME = NULL")
	if out := try(request("go")); out.Acquired || out.Remaining <= 0 {
		t.Errorf("a live row without an owner: %+v, want held", out)
	}
	expire(t, db, spring6, "DEFAULT", "go")
	if out := try(request("go")); !out.Acquired {
		t.Errorf("an expired row without an owner: %+v", out)
	}
}
