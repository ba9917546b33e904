package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// Between a look at the rows and the deletion of those that have expired, one is
// taken over: the deletion finds out.
func TestDeleteExpiredLooksAgain(t *testing.T) {
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		other := open("DEFAULT")
		for _, key := range []string{"a", "b", "c"} {
			grant(t, other, key)
			expire(t, db, spring6, "DEFAULT", key)
		}
		var lease repository.Lease
		options := []repository.Option{}
		if spring6 {
			options = append(options, repository.WithSpring6Layout(spring6TTL))
		}
		repo, err := repository.New(t.Context(), tracedBefore(t, db, func(query string) {
			if strings.Contains(query, "DELETE") && lease.Attempt == 0 {
				lease = grant(t, other, "b")
			}
		}), options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { repo.Close() })
		if n, _ := purge(t, repo); n != 2 || lease.Attempt == 0 {
			t.Errorf("%d rows were deleted, want the 2 that were not taken over", n)
		}
		if there, err := other.Delete(t.Context(), lease); err != nil || !there {
			t.Errorf("the lease that took one over is gone: %v, %v", there, err)
		}
	})
}

// A lease that is renewed at the moment of its end is either renewed or deleted,
// never both.
func TestDeleteExpiredRacesRenewal(t *testing.T) {
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		const ttl, enough = 20 * time.Millisecond, 40
		repo, other := open("DEFAULT"), open("DEFAULT")
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		var renewed, ended, purged atomic.Int64
		seen := func() bool { return renewed.Load() >= enough && ended.Load() >= enough && purged.Load() >= enough }
		// SQLite is busy now and then, and MySQL may let two deadlock.
		failed := func(err error) bool {
			if err != nil && !errors.Is(err, repository.ErrTransient) {
				t.Error(err)
			}
			return err != nil
		}
		var group sync.WaitGroup
		for worker := range 6 {
			group.Go(func() {
				for i := 0; !seen() && ctx.Err() == nil && !t.Failed(); i++ {
					req := repository.Request{Key: fmt.Sprintf("key-%d-%d", worker, i%50), Attempt: repository.NewAttempt(), TTL: ttl}
					out, err := repo.Acquire(ctx, req)
					if failed(err) || !out.Acquired {
						continue
					}
					time.Sleep(rand.N(2 * ttl))
					statuses, err := repo.Renew(ctx, []repository.Lease{req.Lease()}, time.Minute)
					if failed(err) {
						continue
					}
					if statuses[0].State != repository.LeaseStands {
						ended.Add(1)
						continue
					}
					renewed.Add(1)
					time.Sleep(rand.N(ttl / 4))
					for ctx.Err() == nil {
						there, err := repo.Delete(ctx, req.Lease())
						if failed(err) {
							continue
						}
						if !there {
							t.Errorf("%s was renewed, and then deleted as expired", req.Key)
						}
						break
					}
				}
			})
		}
		group.Go(func() {
			for after := ""; !seen() && ctx.Err() == nil && !t.Failed(); {
				n, next, err := other.DeleteExpired(ctx, after)
				if !failed(err) {
					after = next
					purged.Add(n)
				}
			}
		})
		group.Wait()
		if !seen() && !t.Failed() {
			t.Errorf("only %d leases were renewed, %d were not, and %d rows deleted", renewed.Load(), ended.Load(), purged.Load())
		}
	})
}

// While a step has everything locked that it ever locks, every other row of the
// range can be locked, its leases can be renewed and given back, and other keys be
// had: nobody but those who want what it deletes could notice it, however long it
// takes. (SQLite has one writer at a time; there all that helps is that a step is
// short.)
//
// Under REPEATABLE READ, InnoDB's default, there are a few more who wait for a step:
// a search for the first row of a page begins at the end of the one before, and
// locks the gap there.
func TestDeleteExpiredLocksOnlyWhatItDeletes(t *testing.T) {
	const readCommitted = "'READ-COMMITTED'"
	for _, c := range []struct {
		vendor, name string
		params       map[string]string
		free         int // in a hundred of the keys beside
	}{
		{vendor.Postgres, "read committed", nil, 100},
		{vendor.MySQL, "read committed", map[string]string{"transaction_isolation": readCommitted}, 100},
		{vendor.MySQL, "repeatable read", nil, 90},
		{vendor.MariaDB, "read committed", map[string]string{"tx_isolation": readCommitted}, 100},
		{vendor.MariaDB, "repeatable read", nil, 90},
	} {
		t.Run(c.vendor+"/"+c.name, func(t *testing.T) {
			db := testdb.Open(t, c.vendor)
			if c.params != nil {
				db = db.With(t, c.params)
			}
			heldStep(t, db, c.free)
		})
	}
}

func heldStep(t *testing.T, db *testdb.DB, percent int) {
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	const rows = 2000
	fill(t, db, false, rowsOf("DEFAULT", rows, func(i int) bool { return i%4 > 0 }))
	fill(t, db, false, rowsOf("elsewhere", rows, func(i int) bool { return i%4 > 0 }))
	repo, other := newRepository(t, db.DB), newRepository(t, db.DB)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	// take asks until it has the key: who waits for a row may be told to ask again.
	take := func(key string) repository.Lease {
		req := repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: time.Minute}
		for {
			out, err := other.Acquire(ctx, req)
			if err == nil && out.Acquired {
				return req.Lease()
			}
			if ctx.Err() != nil || !errors.Is(err, repository.ErrTransient) {
				t.Errorf("acquire %s: %+v, %v", key, out, err)
				return req.Lease()
			}
		}
	}
	giveBack := func(lease repository.Lease) {
		if ok, err := other.Delete(ctx, lease); err != nil || !ok {
			t.Errorf("give %s back: %v, %v", lease.Key, ok, err)
		}
	}
	var kept []repository.Lease
	for i := 0; i < 300; i += 30 {
		kept = append(kept, take(keyOf(i)+"-kept"))
	}
	db.SetMaxOpenConns(60)
	const keys = 400
	beside := func(had *atomic.Int64) *sync.WaitGroup { // each row that the step deletes, and some
		var group sync.WaitGroup
		for i := range keys {
			group.Go(func() {
				lease := take(keyOf(i) + "-x")
				had.Add(1)
				giveBack(lease)
			})
		}
		return &group
	}
	// Once before, to make room: when InnoDB has to split a page, locks on its rows
	// become locks on the gaps between them.
	beside(new(atomic.Int64)).Wait()

	letGo := holdDeletions(t, db)
	type result struct {
		deleted int64
		err     error
	}
	step := make(chan result, 1)
	go func() {
		n, _, err := repo.DeleteExpired(t.Context(), "")
		step <- result{n, err}
	}()
	waitFor(t, db, map[string]string{
		vendor.Postgres: "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
		vendor.MySQL:    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE = 'User lock'",
		vendor.MariaDB:  "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE = 'User lock'",
	}[db.Vendor])

	free, locked := lockable(t, db)
	if locked == 0 || locked > purgedRows {
		t.Errorf("a step has locked %d rows, want 1 to %d", locked, purgedRows)
	}
	if want := 2*rows/4 + len(kept); free != want {
		t.Errorf("%d live rows can be locked beside a step, want all %d", free, want)
	}
	for _, lease := range kept {
		statuses, err := other.Renew(ctx, []repository.Lease{lease}, time.Minute)
		if err != nil || statuses[0].State != repository.LeaseStands {
			t.Errorf("renew %s: %+v, %v", lease.Key, statuses, err)
		}
		giveBack(lease)
	}
	var had atomic.Int64
	group := beside(&had)
	for start := time.Now(); had.Load() < keys*int64(percent)/100 && !t.Failed(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Errorf("only %d of %d other keys can be had beside a step", had.Load(), keys)
		}
	}
	select {
	case done := <-step:
		t.Errorf("the step was not held: %+v", done)
	default:
	}
	letGo()
	group.Wait() // nobody waits for more than the step
	if done := <-step; done.err != nil || done.deleted != purgedRows {
		t.Errorf("the step ended with %d, %v; want %d", done.deleted, done.err, purgedRows)
	}
}

// holdDeletions has the deletion of rows of fill wait until letGo is called.
// PostgreSQL locks and deletes row by row, so there it waits after the last one;
// InnoDB has locked them all before the first one.
func holdDeletions(t *testing.T, db *testdb.DB) (letGo func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) // which releases what it holds
	run := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := conn.ExecContext(context.Background(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	if db.Vendor == vendor.Postgres {
		run(`CREATE FUNCTION HOLD_ON() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$`,
			`CREATE TRIGGER HOLD_ON AFTER DELETE ON INT_LOCK FOR EACH ROW WHEN (OLD.CLIENT_ID = 'gone') EXECUTE FUNCTION HOLD_ON()`,
			`SELECT pg_advisory_lock(4711)`)
		return func() { run(`SELECT pg_advisory_unlock(4711)`) }
	}
	run(fmt.Sprintf(`CREATE TRIGGER HOLD_ON BEFORE DELETE ON INT_LOCK FOR EACH ROW
SET @held = IF(OLD.CLIENT_ID = 'gone', GET_LOCK('%[1]s', 60) + RELEASE_LOCK('%[1]s'), 0)`, db.Name),
		fmt.Sprintf(`DO GET_LOCK('%s', 60)`, db.Name))
	return func() { run(fmt.Sprintf(`DO RELEASE_LOCK('%s')`, db.Name)) }
}

// waitFor waits until a query counts something.
func waitFor(t *testing.T, db *testdb.DB, query string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("nothing after %v: %s", time.Since(start), query)
		}
	}
}

// lockable counts the live rows that a transaction can lock at once, and the
// rows of any kind that it cannot.
func lockable(t *testing.T, db *testdb.DB) (live, locked int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var all int
	if err := tx.QueryRow("SELECT COUNT(*) FROM INT_LOCK").Scan(&all); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query("SELECT CASE WHEN EXPIRED_AFTER < TIMESTAMP '2010-01-01 00:00:00' THEN 0 ELSE 1 END FROM INT_LOCK FOR UPDATE SKIP LOCKED")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	free := 0
	for rows.Next() {
		var alive int
		if err := rows.Scan(&alive); err != nil {
			t.Fatal(err)
		}
		free++
		live += alive
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return live, all - free
}
