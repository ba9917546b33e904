package registry_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// TestPolledLockIsRenewed: forty others ask for a lock without any pause, for
// three times its TTL. They must not keep its holder from renewing it.
func TestPolledLockIsRenewed(t *testing.T) {
	const ttl = 2 * time.Second
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db)
		hold, err := newRegistry(t, db.Again(t).DB, registry.WithTTL(ttl)).Obtain("hot").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pool := db.Again(t)
		pool.SetMaxOpenConns(40)
		pool.SetMaxIdleConns(40)
		repo, err := repository.New(t.Context(), pool.DB)
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		var asked atomic.Int64
		var pollers sync.WaitGroup
		for range 40 {
			pollers.Go(func() {
				req := repository.Request{Key: registry.PathFor("hot"), Attempt: repository.NewAttempt(), TTL: ttl}
				for ctx.Err() == nil {
					out, err := repo.Acquire(ctx, req)
					if err == nil && out.Acquired {
						t.Error("the lock was taken over")
						return
					}
					req.Polling = true
					asked.Add(1)
				}
			})
		}
		pollers.Wait()
		t.Logf("%d refused attempts", asked.Load())
		if err := hold.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
