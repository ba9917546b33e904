//go:build unix

package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/repository/repositorytest"
	"github.com/intlock/intlock/schema"
)

// Many goroutines of several programs share two connections of the server. No
// statement is lost or taken for another, and locks exclude.
func TestBehindPgbouncer(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	pooled, _ := testdb.Pgbouncer(t, db)
	var programs []*repository.DefaultLockRepository
	for i := range 4 {
		repo, err := repository.New(t.Context(), pooled.Again(t).DB, repository.WithTokens(), repository.WithAsyncRelease(), repository.WithNotify(), repository.WithClientID(fmt.Sprint("client-", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { repo.Close() })
		programs = append(programs, repo)
	}
	var holders [3]atomic.Int32
	var all sync.WaitGroup
	var granted, refused atomic.Int64
	for i := range 20 {
		all.Go(func() {
			repo := programs[i%len(programs)]
			for n := range 40 {
				k := (i + n) % len(holders)
				req := repository.Request{Key: fmt.Sprint("key-", k), Attempt: repository.NewAttempt(), TTL: time.Minute, Name: `it's a "name" \ with ü`}
				out, err := repo.Acquire(context.Background(), req)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if !out.Acquired {
					refused.Add(1)
					continue
				}
				granted.Add(1)
				if holders[k].Add(1) != 1 {
					t.Errorf("%s is held twice", req.Key)
				}
				if answers, err := repo.Renew(context.Background(), []repository.Lease{req.Lease()}, time.Minute); err != nil || answers[0].State != repository.LeaseStands {
					t.Errorf("renew: %v, %v", answers, err)
				}
				holders[k].Add(-1)
				if ok, err := repo.Delete(context.Background(), req.Lease()); err != nil || !ok {
					t.Errorf("release: %v, %v", ok, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d granted, %d refused", granted.Load(), refused.Load())
	if granted.Load() == 0 {
		t.Error("nobody got a lock")
	}
}

// New sees the pooler, also through a pool of one; then each call is one round
// trip, and the suite passes.
func TestPoolerIsSeen(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	pooled, proxy := testdb.Pgbouncer(t, db)
	repo, err := repository.New(t.Context(), pooled.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	var prepared int
	if err := pooled.QueryRow("SELECT COUNT(*) FROM pg_prepared_statements").Scan(&prepared); err != nil {
		t.Fatal(err)
	}
	proxy.ResetRoundTrips()
	for range 3 {
		req := repository.Request{Key: "k", Attempt: repository.NewAttempt(), TTL: time.Minute}
		if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
			t.Fatal(out, err)
		}
		if ok, err := repo.Delete(t.Context(), req.Lease()); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if n := proxy.RoundTrips(); n != 6 {
		t.Errorf("%d round trips for 3 acquires and 3 releases", n)
	}
	var now int
	if err := pooled.QueryRow("SELECT COUNT(*) FROM pg_prepared_statements").Scan(&now); err != nil || now != prepared {
		t.Errorf("%d statements are prepared on the server, %v; there were %d", now, err, prepared)
	}
	var n atomic.Int64
	repositorytest.Run(t, func(t *testing.T) repositorytest.Harness {
		prefix := fmt.Sprintf("P%d_", n.Add(1))
		if err := schema.Apply(t.Context(), db, prefix); err != nil {
			t.Fatal(err)
		}
		open := func(opts ...repository.Option) func(*testing.T, string, string) repository.LockRepository {
			return func(t *testing.T, region, clientID string) repository.LockRepository {
				repo, err := repository.New(t.Context(), pooled.DB, append(opts, repository.WithPrefix(prefix), repository.WithRegion(region), repository.WithClientID(clientID))...)
				if err != nil {
					t.Fatal(err)
				}
				return repo
			}
		}
		return repositorytest.Harness{
			Open: open(), OpenWithTokens: open(repository.WithTokens()),
			Expire: func(t *testing.T, region, key string) {
				if _, err := db.Exec(fmt.Sprintf("UPDATE %sLOCK SET EXPIRED_AFTER = TIMESTAMP '2001-01-01' WHERE REGION = '%s' AND LOCK_KEY = '%s'", prefix, region, key)); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// A pooler that comes later, or that New missed: the first statement that the
// server does not know switches the repository over, and was not executed.
func TestPoolerIsNoticedLater(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	repo, err := repository.New(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	take := func() (repository.Outcome, error) {
		return repo.Acquire(t.Context(), repository.Request{Key: "k", Attempt: repository.NewAttempt(), TTL: time.Minute})
	}
	if out, err := take(); err != nil || !out.Acquired {
		t.Fatal(out, err)
	}
	// Another connection of the server would not know the statements either.
	if _, err := db.Exec("DEALLOCATE ALL"); err != nil {
		t.Fatal(err)
	}
	out, err := take()
	if err == nil || !errors.Is(err, repository.ErrNotExecuted) {
		t.Errorf("%+v, %v; want ErrTransient and ErrNotExecuted", out, err)
	}
	if out, err = take(); err != nil || out.Acquired {
		t.Errorf("%+v, %v; want it held", out, err)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE '%INT_LOCK%'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d statements are still prepared, %v", n, err)
	}
}

// The table gains a column while the repository works.
func TestColumnAdded(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]repository.Option{{repository.WithTokens()}, {repository.WithTokens(), repository.WithoutPreparedStatements()}} {
			repo, err := repository.New(t.Context(), db.DB, opts...)
			if err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var others sync.WaitGroup
			for i := range 4 {
				others.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						req := repository.Request{Key: fmt.Sprint("key-", i), Attempt: repository.NewAttempt(), TTL: time.Minute}
						out, err := repo.Acquire(context.Background(), req)
						if err == nil && out.Acquired {
							_, err = repo.Delete(context.Background(), req.Lease())
						}
						if err != nil && !errors.Is(err, repository.ErrTransient) {
							t.Errorf("while a column is added: %v", err)
							return
						}
					}
				})
			}
			for i := range 3 {
				time.Sleep(20 * time.Millisecond)
				if err := addColumn(db.DB, fmt.Sprintf("EXTRA_%d_%d", len(opts), i)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Millisecond)
			close(stop)
			others.Wait()
			repo.Close()
		}
	})
}

func addColumn(db *sql.DB, name string) (err error) {
	for range 200 { // SQLite is busy
		if _, err = db.Exec("ALTER TABLE INT_LOCK ADD COLUMN " + name + " VARCHAR(20)"); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}
