package repository_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// fill inserts rows of a region, some of which have expired.
func fill(t testing.TB, db *testdb.DB, region string, rows int, expired func(int) bool) {
	t.Helper()
	past, future := "TIMESTAMP '2001-01-01 00:00:00'", "TIMESTAMP '2099-01-01 00:00:00'"
	if db.Vendor == vendor.SQLite {
		past, future = "978307200000", "4070908800000"
	}
	for from := 0; from < rows; from += 500 {
		var values []string
		for i := from; i < min(from+500, rows); i++ {
			end := future
			if expired(i) {
				end = past
			}
			values = append(values, fmt.Sprintf("('key-%07d', '%s', 'gone', %s, %s)", i, region, past, end))
		}
		if _, err := db.Exec("INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER) VALUES " + strings.Join(values, ", ")); err != nil {
			t.Fatal(err)
		}
	}
}

// DeleteExpired goes through the table in bounded steps. It waits for no row and
// no row waits for it, but for those it deletes.
func TestDeleteExpiredInSteps(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		const rows = 5000
		expired := func(i int) bool { return i%2 == 1 || i < 1500 }
		want := int64(0)
		for i := range rows {
			if expired(i) {
				want++
			}
		}
		fill(t, db, "DEFAULT", rows, expired)
		fill(t, db, "elsewhere", rows, expired)
		repo, err := repository.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { repo.Close() })
		all := func() (deleted int64, steps int) {
			for after := ""; steps == 0 || after != ""; steps++ {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				n, next, err := repo.DeleteExpired(ctx, after)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				if n > 256 || next != "" && next <= after {
					t.Fatalf("a step from %q to %q deleted %d rows", after, next, n)
				}
				deleted, after = deleted+n, next
			}
			return deleted, steps
		}
		locked := int64(0)
		if db.Vendor != vendor.SQLite { // where a transaction that writes has locked the whole file
			locked = 2
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("SELECT LOCK_KEY FROM INT_LOCK WHERE LOCK_KEY IN ('key-0000007', 'key-0004001') AND REGION = 'DEFAULT' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			defer func() {
				tx.Rollback()
				if n, _ := all(); n != locked {
					t.Errorf("%d rows were deleted once they were free, want %d", n, locked)
				}
			}()
		}
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() { // others lock keys of the same range meanwhile, and keep theirs
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				req := repository.Request{Key: fmt.Sprintf("key-%07d-x", i%rows), Attempt: repository.NewAttempt(), TTL: time.Minute}
				out, err := repo.Acquire(context.Background(), req)
				if err != nil || !out.Acquired {
					t.Errorf("acquire meanwhile: %+v, %v", out, err)
					return
				}
				if ok, err := repo.Delete(context.Background(), req.Lease()); err != nil || !ok {
					t.Errorf("release meanwhile: %v, %v", ok, err)
					return
				}
			}
		})
		deleted, steps := all()
		close(stop)
		others.Wait()
		if deleted != want-locked {
			t.Errorf("%d rows were deleted in %d steps, want %d", deleted, steps, want-locked)
		}
		if steps < int(want)/256 {
			t.Errorf("%d steps", steps)
		}
		var live, elsewhere int64
		if err := db.QueryRow("SELECT COUNT(CASE WHEN REGION = 'DEFAULT' THEN 1 END), COUNT(CASE WHEN REGION = 'elsewhere' THEN 1 END) FROM INT_LOCK").Scan(&live, &elsewhere); err != nil {
			t.Fatal(err)
		}
		if live != rows-want+locked || elsewhere != rows {
			t.Errorf("%d rows are left, and %d of another region; want %d and %d", live, elsewhere, rows-want+locked, rows)
		}
		if _, _, err := repo.DeleteExpired(t.Context(), "a key that is much too long to be one of this table"); err == nil {
			t.Error("no error for a key that cannot be")
		}
	})
}
