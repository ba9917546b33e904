package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// counting is a registry on memory that counts the losses it tells.
func counting(t *testing.T, told *atomic.Int64, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.NewMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := registry.New(repo, append(opts, registry.WithLogger(slog.New(slog.DiscardHandler)),
		registry.WithOnLost(func(*registry.LostError) { told.Add(1) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

// TestUnlockMeetsTheEnd: an Unlock at the very moment at which the lease ends.
// Either OnLost and Unlock both say that it was lost, or neither does.
func TestUnlockMeetsTheEnd(t *testing.T) {
	var told, said atomic.Int64
	locks := counting(t, &told, registry.WithTTL(4*time.Millisecond), registry.WithRenewal(false))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			lock := locks.Obtain(fmt.Sprint("key-", i))
			for range 1000 {
				hold, err := lock.LockContext(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(hold.Remaining() - 300*time.Microsecond)
				for hold.Remaining() > 2*time.Microsecond {
				}
				if hold.Unlock(context.Background()) != nil {
					said.Add(1)
				}
			}
		})
	}
	all.Wait()
	time.Sleep(100 * time.Millisecond) // for the handlers
	if told.Load() != said.Load() {
		t.Errorf("OnLost was told of %d losses, Unlock of %d", told.Load(), said.Load())
	}
}

// TestUnlockMeetsCloseOnce: the same where Close takes the lease away.
func TestUnlockMeetsCloseOnce(t *testing.T) {
	var told, said atomic.Int64
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 1000 {
		locks := counting(t, &told)
		hold, err := locks.Obtain("key").LockContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var unlock sync.WaitGroup
		unlock.Go(func() {
			if hold.Unlock(context.Background()) != nil {
				said.Add(1)
			}
		})
		locks.Close(ended)
		unlock.Wait()
	}
	time.Sleep(100 * time.Millisecond)
	if told.Load() != said.Load() {
		t.Errorf("OnLost was told of %d losses, Unlock of %d", told.Load(), said.Load())
	}
}
