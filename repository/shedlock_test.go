package repository_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/repository/repositorytest"
	"github.com/intlock/intlock/schema"
)

// past is a time that has passed, and past1 a millisecond after it.
func shedlockPast(name string) string {
	switch name {
	case vendor.Postgres:
		return "(statement_timestamp() AT TIME ZONE 'UTC') - INTERVAL '1 millisecond'"
	case vendor.SQLite:
		return "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 1"
	}
	return "UTC_TIMESTAMP(3) - INTERVAL 1000 MICROSECOND"
}

// without is what cannot hold on ShedLock's table.
func without(name string) []string {
	all := []string{
		"Regions",                  // there are none
		"List", "Get", "LongNames", // a key is the name, so there is no other; TestShedLockBesideJava has Get
		"BadArguments",        // other keys are good; TestShedLockInput has them
		"Delete", "RenewMany", // a row that was given back is still there: taken, not deleted
		"DeleteExpired", "DeleteExpiredAfter", // rows stay
	}
	if name == vendor.MySQL || name == vendor.MariaDB {
		all = append(all, "KeysAreExact") // the usual collations do not tell upper from lower case
	}
	return all
}

// TestShedLock runs the contract on tables of ShedLock's shape.
func TestShedLock(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		mark := db.LogMark(t)
		t.Run("contract", func(t *testing.T) {
			var n atomic.Int64
			repositorytest.Run(t, func(t *testing.T) repositorytest.Harness {
				clause := n.Add(1)
				table := func(region string) string {
					return fmt.Sprintf("shedlock_%d_%s", clause, strings.ToLower(strings.NewReplacer(" ", "", ".", "_", ":", "_", "-", "_").Replace(region)))
				}
				made := map[string]bool{}
				return repositorytest.Harness{
					Without: without(db.Vendor),
					Open: func(t *testing.T, region, clientID string) repository.LockRepository {
						t.Helper()
						if name := table(region); !made[name] {
							made[name] = true
							if err := schema.ApplyShedLock(t.Context(), db, name); err != nil {
								t.Fatal(err)
							}
						}
						repo, err := repository.NewShedLock(t.Context(), db, repository.WithShedLockTable(table(region)), repository.WithClientID(clientID))
						if err != nil {
							t.Fatal(err)
						}
						return repo
					},
					Expire: func(t *testing.T, region, key string) {
						t.Helper()
						exec(t, db.DB, fmt.Sprintf("UPDATE %s SET lock_until = %s WHERE name = '%s'", table(region), shedlockPast(db.Vendor), key))
					},
				}
			})
		})
		if db.Vendor == vendor.Postgres {
			if errs := mark.NewErrors(t); len(errs) > 0 {
				t.Errorf("the server logged %q", errs)
			}
		}
	})
}

// A job in Java and one here exclude each other: the statements of ShedLock's
// JdbcTemplateLockProvider with the database's time.
func TestShedLockBesideJava(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		if err := schema.ApplyShedLock(t.Context(), db, "shedlock"); err != nil {
			t.Fatal(err)
		}
		now, until := "UTC_TIMESTAMP(3)", "TIMESTAMPADD(MICROSECOND, 60000000, UTC_TIMESTAMP(3))"
		switch db.Vendor {
		case vendor.Postgres:
			now, until = "timezone('utc', CURRENT_TIMESTAMP)", "timezone('utc', CURRENT_TIMESTAMP) + INTERVAL '60 seconds'"
		case vendor.SQLite:
			now, until = "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)", "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + 60000"
		}
		java := func(text string) int64 {
			t.Helper()
			result, err := db.Exec(strings.NewReplacer("{now}", now, "{until}", until).Replace(text))
			if err != nil {
				t.Fatal(err)
			}
			n, err := result.RowsAffected()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		const update = "UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = 'java-host' WHERE name = 'job' AND lock_until <= {now}"
		repo, err := repository.NewShedLock(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		acquire := func() (repository.Outcome, repository.Lease) {
			t.Helper()
			req := repository.Request{Key: "job", Attempt: repository.NewAttempt(), TTL: time.Minute}
			out, err := repo.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return out, req.Lease()
		}
		java("INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('job', {until}, {now}, 'java-host')")
		out, _ := acquire()
		if out.Acquired || out.Holder != "java-host" || out.ClientID != "" || out.Remaining < 50*time.Second {
			t.Errorf("while Java has it: %+v", out)
		}
		java("UPDATE shedlock SET lock_until = {now} WHERE name = 'job' AND locked_by = 'java-host'") // Java's unlock
		out, lease := acquire()
		if !out.Acquired {
			t.Fatalf("free: %+v", out)
		}
		if n := java(update); n != 0 {
			t.Errorf("Java took it from us: %d rows", n)
		}
		if n := java("UPDATE shedlock SET lock_until = {now} WHERE name = 'job' AND locked_by = 'java-host'"); n != 0 {
			t.Errorf("a late unlock of Java's changed %d rows", n)
		}
		if ok, err := repo.EndAfter(t.Context(), lease, 10*time.Second); !ok || err != nil {
			t.Errorf("EndAfter = %v, %v", ok, err)
		}
		if n := java(update); n != 0 {
			t.Errorf("Java took it within its minimum: %d rows", n)
		}
		exec(t, db.DB, "UPDATE shedlock SET lock_until = "+shedlockPast(db.Vendor)+" WHERE name = 'job'")
		if n := java(update); n != 1 {
			t.Errorf("Java cannot have it: %d rows", n)
		}
		if info, found, err := repo.Get(t.Context(), "job"); err != nil || !found || info.Holder != "java-host" || !info.Held() || info.Name != "job" {
			t.Errorf("Get = %+v, %v, %v", info, found, err)
		}
	})
}

// What is wrong is said at the start.
func TestShedLockInput(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		if _, err := repository.NewShedLock(t.Context(), db); !errors.Is(err, repository.ErrTable) || !strings.Contains(err.Error(), "ApplyShedLock") {
			t.Errorf("no table: %v", err)
		}
		for _, opts := range [][]repository.Option{
			{repository.WithTokens()}, {repository.WithNotify()}, {repository.WithSpring6Layout(time.Second)}, {repository.WithInsertQuery("x")},
			{repository.WithShedLockTable("x; DROP TABLE y")}, {repository.WithClientID("")},
		} {
			if _, err := repository.NewShedLock(t.Context(), db, opts...); !errors.Is(err, repository.ErrInvalid) {
				t.Errorf("err = %v, want ErrInvalid", err)
			}
		}
		if _, err := repository.New(t.Context(), db, repository.WithShedLockTable("shedlock")); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("New: %v", err)
		}
		if db.Driver == "mysql" {
			exec(t, db.DB, "CREATE TABLE coarse (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, locked_by VARCHAR(255) NOT NULL)")
			_, err := repository.NewShedLock(t.Context(), db, repository.WithShedLockTable("coarse"))
			if !errors.Is(err, repository.ErrTable) {
				t.Fatalf("without milliseconds: %v", err)
			}
			_, mend, _ := strings.Cut(err.Error(), "run: ")
			exec(t, db.DB, mend)
			if _, err := repository.NewShedLock(t.Context(), db, repository.WithShedLockTable("coarse")); err != nil {
				t.Errorf("mended: %v", err)
			}
		}
		if err := schema.ApplyShedLock(t.Context(), db, "shedlock"); err != nil {
			t.Fatal(err)
		}
		repo, err := repository.NewShedLock(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", " x", strings.Repeat("x", 65), "a\x00b", "\xff"} {
			if _, err := repo.PathFor(name); !errors.Is(err, repository.ErrInvalid) {
				t.Errorf("name %q: %v", name, err)
			}
		}
		for _, name := range []string{"täglicher Bericht", strings.Repeat("é", 64), "a'b\"c\\d", "日報 🔒"} {
			req := repository.Request{Key: name, Attempt: repository.NewAttempt(), TTL: time.Minute}
			if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
				t.Errorf("name %q: %+v, %v", name, out, err)
			}
			if ok, err := repo.Delete(t.Context(), req.Lease()); !ok || err != nil {
				t.Errorf("name %q: %v, %v", name, ok, err)
			}
		}
	})
}
