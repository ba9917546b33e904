package repository_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// A server that is killed loses some of the releases that were committed
// asynchronously. It loses no grant that anybody was told of, and no release
// that somebody else's grant came after.
func TestAsyncReleaseAndCrashes(t *testing.T) {
	t.Parallel()
	const crashes, workers = 20, 4
	server := testdb.Private(t, vendor.Postgres)
	db := server.Open(t)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	var repos [2]*repository.DefaultLockRepository
	for i := range repos {
		repo, err := repository.New(t.Context(), db.DB, repository.WithAsyncRelease(), repository.WithClientID(fmt.Sprint("client-", i)))
		if err != nil {
			t.Fatal(err)
		}
		repos[i] = repo
	}
	undone := 0
	for crash := range crashes {
		// Each worker passes a key of its own from client to client. The last
		// lease that was granted is the truth.
		var stop atomic.Bool
		var all sync.WaitGroup
		last := make([]repository.Lease, workers)
		owner := make([]int, workers)
		released := make([]bool, workers) // the answer to the release came
		for w := range workers {
			all.Go(func() {
				for n := 0; !stop.Load(); n++ {
					req := repository.Request{Key: fmt.Sprintf("key-%d-%d", crash, w), Attempt: repository.NewAttempt(), TTL: time.Hour}
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					out, err := repos[n%2].Acquire(ctx, req)
					cancel()
					if err != nil {
						return // the crash: whether it was granted is unknown, so nobody trusts in it
					}
					if !out.Acquired {
						t.Errorf("%s is held by %s though it was released", req.Key, out.ClientID)
						return
					}
					last[w], owner[w], released[w] = req.Lease(), n%2, false
					ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
					deleted, err := repos[n%2].Delete(ctx, req.Lease())
					cancel()
					if err != nil {
						return
					}
					released[w] = true
					if !deleted {
						t.Errorf("%s: the release found no row", req.Key)
					}
				}
			})
		}
		time.Sleep(150 * time.Millisecond)
		server.Stop(t, testdb.Kill)
		stop.Store(true)
		all.Wait()
		server.Start(t)
		for w := range workers {
			ctx := context.Background()
			var statuses []repository.LeaseStatus
			err := errors.New("not asked")
			for start := time.Now(); err != nil && time.Since(start) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
				statuses, err = repos[owner[w]].Renew(ctx, []repository.Lease{last[w]}, time.Hour)
			}
			if err != nil {
				t.Fatal(err)
			}
			switch state := statuses[0].State; {
			case state == repository.LeaseStands && released[w]:
				undone++ // the crash has undone the release
			case state == repository.LeaseStands: // not released
			case state == repository.LeaseTaken:
				// By the grant whose answer was lost, if that; but by none of before.
				if statuses[0].ClientID == fmt.Sprint("client-", owner[w]) {
					t.Errorf("key %d: an earlier lease of %s is back", w, statuses[0].ClientID)
				}
			case state == repository.LeaseDeleted && !released[w]:
				// The release was executed, and its answer lost.
			case state == repository.LeaseDeleted:
			default:
				t.Errorf("key %d: %v", w, state)
			}
		}
	}
	t.Logf("%d of %d releases were undone by a crash", undone, crashes*workers)
}

// What async commit is for is the release alone: acquires, renewals and other
// statements of the connection are durable as ever.
func TestAsyncReleaseIsLocal(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	db.SetMaxOpenConns(1)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	repo, err := repository.New(t.Context(), db.DB, repository.WithAsyncRelease(), repository.WithNotify())
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	if _, err := db.Exec("SET synchronous_commit = on"); err != nil { // on the one connection there is
		t.Fatal(err)
	}
	for range 3 {
		req := repository.Request{Key: "job", Attempt: repository.NewAttempt(), TTL: time.Minute}
		if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
			t.Fatal(out, err)
		}
		if ok, err := repo.Delete(t.Context(), req.Lease()); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if ok, err := repo.Delete(t.Context(), req.Lease()); err != nil || ok {
			t.Errorf("a second release: %v, %v; want false", ok, err)
		}
		var setting string
		if err := db.QueryRow("SELECT current_setting('synchronous_commit')").Scan(&setting); err != nil || setting != "on" {
			t.Errorf("synchronous_commit is %q after a release, %v", setting, err)
		}
		var locks int
		if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks); err != nil || locks != 0 {
			t.Errorf("%d advisory locks are left, %v", locks, err)
		}
	}
}
