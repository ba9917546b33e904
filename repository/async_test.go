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
	undone, keeps := 0, 0
	for crash := range crashes {
		// Each worker passes a key of its own from client to client, and every
		// now and then takes one that it keeps. What it was told last is the truth.
		var stop atomic.Bool
		var all sync.WaitGroup
		var told [workers]struct {
			last, next repository.Lease // the last grant that was told of; the request after it
			owner      int              // of last
			released   bool             // the answer to the release of last came
			kept       []repository.Lease
		}
		for w := range workers {
			all.Go(func() {
				me := &told[w]
				acquire := func(by int, key string) (repository.Lease, bool) {
					req := repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: time.Hour}
					me.next = req.Lease()
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					out, err := repos[by].Acquire(ctx, req)
					if err == nil && !out.Acquired {
						t.Errorf("%s is held by %s though it was released", key, out.ClientID)
					}
					return req.Lease(), err == nil && out.Acquired // an error is the crash: nobody trusts in such a grant
				}
				for n := 0; !stop.Load(); n++ {
					if n%8 == 7 {
						lease, ok := acquire(0, fmt.Sprintf("kept-%d-%d-%d", crash, w, n))
						if !ok {
							return
						}
						me.kept = append(me.kept, lease)
					}
					lease, ok := acquire(n%2, fmt.Sprintf("key-%d-%d", crash, w))
					if !ok {
						return
					}
					me.last, me.owner, me.released = lease, n%2, false
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					deleted, err := repos[n%2].Delete(ctx, lease)
					cancel()
					if err != nil {
						return
					}
					me.released = true
					if !deleted {
						t.Errorf("%s: the release found no row", lease.Key)
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
			me := &told[w]
			var attempt int64
			err := errors.New("not asked")
			for start := time.Now(); err != nil && !errors.Is(err, sql.ErrNoRows) && time.Since(start) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
				err = db.QueryRow("SELECT ATTEMPT FROM INT_LOCK WHERE LOCK_KEY = $1", me.last.Key).Scan(&attempt)
			}
			switch {
			case errors.Is(err, sql.ErrNoRows): // released, or being released when the server died
			case err != nil:
				t.Fatal(err)
			case attempt == me.last.Attempt && me.released:
				undone++ // the crash has undone the release
			case attempt == me.last.Attempt: // not released
			case attempt == me.next.Attempt && me.next.Key == me.last.Key && me.released:
				// The grant whose answer was lost.
			default:
				t.Errorf("key %d: a lease from before the last one is back", w)
			}
			if len(me.kept) == 0 {
				continue
			}
			statuses, err := repos[0].Renew(t.Context(), me.kept, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			keeps += len(statuses)
			for i, status := range statuses {
				if status.State != repository.LeaseStands {
					t.Errorf("%s was granted, and is %v after the crash", me.kept[i].Key, status.State)
				}
			}
		}
	}
	if keeps == 0 {
		t.Error("nothing was kept: this test shows nothing")
	}
	t.Logf("%d of %d releases were undone by a crash; %d locks were kept over one", undone, crashes*workers, keeps)
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
		if err := db.QueryRow(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&locks); err != nil || locks != 0 {
			t.Errorf("%d advisory locks are left, %v", locks, err)
		}
	}
}
