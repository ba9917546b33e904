package repository_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// The bounds that a step of DeleteExpired promises.
const (
	lookedRows = 1000
	purgedRows = 256
)

// keyOf is the key of a row that fill makes.
func keyOf(i int) string { return fmt.Sprintf("key-%07d", i) }

// tableRow is a row that fill makes, of a lease that nobody keeps.
type tableRow struct {
	region, key string
	expired     bool
}

// fill inserts rows.
func fill(t testing.TB, db *testdb.DB, spring6 bool, rows iter.Seq[tableRow]) {
	t.Helper()
	past, future := "TIMESTAMP '2001-01-01 00:00:00'", "TIMESTAMP '2099-01-01 00:00:00'"
	if db.Vendor == vendor.SQLite {
		past, future = "978307200000", "4070908800000"
	}
	columns, created := "CREATED_DATE, EXPIRED_AFTER", past+", "
	if spring6 {
		columns, created = "CREATED_DATE", ""
	}
	for some := range slices.Chunk(slices.Collect(rows), 1000) {
		var values []string
		for _, row := range some {
			end := future
			if row.expired {
				end = past
			}
			values = append(values, fmt.Sprintf("('%s', '%s', 'gone', %s)", row.key, row.region, created+end))
		}
		if _, err := db.Exec("INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, " + columns + ") VALUES " + strings.Join(values, ", ")); err != nil {
			t.Fatal(err)
		}
	}
}

// rowsOf are the first rows of a region.
func rowsOf(region string, rows int, expired func(int) bool) iter.Seq[tableRow] {
	return func(yield func(tableRow) bool) {
		for i := range rows {
			if !yield(tableRow{region, keyOf(i), expired(i)}) {
				return
			}
		}
	}
}

// purge runs DeleteExpired to its end.
func purge(t testing.TB, repo repository.LockRepository) (deleted int64, steps int) {
	t.Helper()
	for after := ""; steps == 0 || after != ""; steps++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		n, next, err := repo.DeleteExpired(ctx, after)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if n > purgedRows || next != "" && next <= after {
			t.Fatalf("a step from %q to %q deleted %d rows", after, next, n)
		}
		deleted, after = deleted+n, next
	}
	return deleted, steps
}

// purgeTest runs f on a table of either layout.
func purgeTest(t *testing.T, f func(t *testing.T, db *testdb.DB, spring6 bool, open func(region string) *repository.DefaultLockRepository)) {
	for _, spring6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "Spring 7", true: "Spring 6"}[spring6], func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.DB) {
				if spring6 {
					createSpring6Table(t, db)
				} else if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
					t.Fatal(err)
				}
				f(t, db, spring6, func(region string) *repository.DefaultLockRepository {
					opts := []repository.Option{repository.WithRegion(region)}
					if spring6 {
						opts = append(opts, repository.WithSpring6Layout(spring6TTL))
					}
					repo, err := repository.New(t.Context(), db.DB, opts...)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { repo.Close() })
					return repo
				})
			})
		})
	}
}

// DeleteExpired goes through a table of 30,000 rows in bounded steps, whatever
// the region and the state of what it comes by. It waits for no row, and others
// take and give back keys in the same range meanwhile.
func TestDeleteExpiredInSteps(t *testing.T) {
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		// From dense to sparse: all, every other, none but the last.
		const rows, others = 10_000, 20_000
		expired := func(i int) bool { return i < 2000 || i < 5000 && i%2 == 1 || i == rows-1 }
		want := int64(0)
		for i := range rows {
			if expired(i) {
				want++
			}
		}
		fill(t, db, spring6, rowsOf("DEFAULT", rows, expired))
		fill(t, db, spring6, rowsOf("elsewhere", others, expired))
		repo := open("DEFAULT")
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
				if n, _ := purge(t, repo); n != locked {
					t.Errorf("%d rows were deleted once they were free, want %d", n, locked)
				}
			}()
		}
		stop := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() { // takes keys of the same range meanwhile, and keeps its own
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				req := repository.Request{Key: keyOf(i%rows) + "-x", Attempt: repository.NewAttempt(), TTL: time.Minute}
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
		deleted, steps := purge(t, repo)
		close(stop)
		group.Wait()
		if deleted != want-locked {
			t.Errorf("%d rows were deleted in %d steps, want %d", deleted, steps, want-locked)
		}
		// Each step looks at 1000 rows at most, those of other regions included,
		// and a dense stretch takes one for every 256 it deletes.
		if least := 2000/purgedRows + (rows+others-4000)/lookedRows; steps < least {
			t.Errorf("%d steps, want %d at least", steps, least)
		}
		var live, elsewhere int64
		if err := db.QueryRow("SELECT COUNT(CASE WHEN REGION = 'DEFAULT' THEN 1 END), COUNT(CASE WHEN REGION = 'elsewhere' THEN 1 END) FROM INT_LOCK").Scan(&live, &elsewhere); err != nil {
			t.Fatal(err)
		}
		if live != rows-want+locked || elsewhere != others {
			t.Errorf("%d rows are left, and %d of another region; want %d and %d", live, elsewhere, rows-want+locked, others)
		}
		if _, _, err := repo.DeleteExpired(t.Context(), "a key that is much too long to be one of this table"); err == nil {
			t.Error("no error for a key that cannot be")
		}
	})
}

// Keys that many regions have: a step may end in the midst of a key's rows, and
// none of them is forgotten, even if a key has more rows than a step looks at.
func TestDeleteExpiredOfManyRegions(t *testing.T) {
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		others := []int{600, 600, 1500, 1500, 0} // that have the key, beside a, m and z
		live := 3
		fill(t, db, spring6, func(yield func(tableRow) bool) {
			for k, n := range others {
				for i := range n {
					yield(tableRow{fmt.Sprintf("r%04d", i), keyOf(k), true})
				}
				for _, region := range []string{"a", "m", "z"} {
					yield(tableRow{region, keyOf(k), k != live})
				}
			}
		})
		for _, region := range []string{"m", "z", "a"} {
			if n, _ := purge(t, open(region)); n != int64(len(others)-1) {
				t.Errorf("region %s: %d rows were deleted, want all %d but one", region, n, len(others))
			}
		}
		var left, elsewhere int
		if err := db.QueryRow("SELECT COUNT(CASE WHEN REGION IN ('a', 'm', 'z') THEN 1 END), COUNT(CASE WHEN REGION > 'r' AND REGION < 's' THEN 1 END) FROM INT_LOCK").Scan(&left, &elsewhere); err != nil {
			t.Fatal(err)
		}
		if left != 3 || elsewhere != 4200 {
			t.Errorf("%d rows are left, and %d of other regions; want the live ones and all", left, elsewhere)
		}
	})
}
