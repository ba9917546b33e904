package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
)

// TestWarnedAtOnce: a lease that was granted so slowly that it is warned of at
// once can be renewed, looked up and given back by the handler, whoever is
// faster. The race detector finds a handler that is too fast.
func TestWarnedAtOnce(t *testing.T) {
	for _, unlocks := range []bool{false, true} {
		var locks *registry.JdbcLockRegistry
		warned := make(chan error, 1)
		warn := func(h *registry.Hold) {
			if unlocks {
				warned <- h.Unlock(context.Background())
				return
			}
			err := h.Renew(context.Background())
			if err == nil {
				err = locks.RenewLock(context.Background(), "foo")
			}
			warned <- err
		}
		alone(t, func(t *testing.T, l *registry.JdbcLockRegistry, repo *registrytest.Around) {
			locks = l
			repo.Set(func(_ context.Context, op string, do func() error) error {
				err := do()
				if op == "acquire" {
					time.Sleep(4800 * time.Millisecond)
				}
				return err
			})
			hold, err := locks.Obtain("foo").LockContext(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if err := <-warned; err != nil {
				t.Error(err)
			}
			if !unlocks {
				err = hold.Unlock(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		}, registry.WithExpiryWarning(5*time.Second, warn))
	}
}
