package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
)

// kept is one lock of TestKeepAliveDay.
type kept struct {
	key     string
	ttl     time.Duration
	hold    *registry.Hold
	deleted time.Time // by an operator; zero: the row is there
	told    *registry.LostError
}

// keptDay is a registry that holds many locks for a day.
type keptDay struct {
	t     *testing.T
	table repository.MemoryTable
	locks *registry.JdbcLockRegistry

	mu    sync.Mutex // guards the fields below
	all   map[string]*kept
	down  time.Time // until then no renewal is answered
	count map[string]int
}

// TestKeepAliveDay: for a day of locks that come and go, of renewals that fail
// and of rows that an operator deletes, every hold that has lost its row hears
// of it within its TTL, and none that has it is called lost. In the end
// nothing is left.
func TestKeepAliveDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &keptDay{t: t, all: make(map[string]*kept), count: make(map[string]int)}
		memory, err := repository.NewMemory(&d.table)
		if err != nil {
			t.Fatal(err)
		}
		repo := &registrytest.Around{LockRepository: memory}
		repo.Set(d.fails)
		d.locks, err = registry.New(repo, registry.WithOnLost(d.lost), registry.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			k := &kept{key: fmt.Sprint("key-", i), ttl: []time.Duration{20 * time.Second, 30 * time.Second, time.Minute}[i%3]}
			d.all[k.key] = k
			d.lock(k)
		}
		goroutines, hours := runtime.NumGoroutine(), 24
		if testing.Short() {
			hours = 3
		}
		begin := time.Now()
		for hour := range hours {
			for time.Since(begin) < time.Duration(hour+1)*time.Hour {
				time.Sleep(rand.N(5 * time.Second))
				d.step(d.all[fmt.Sprint("key-", rand.N(len(d.all)))])
			}
			synctest.Wait()
			if n := runtime.NumGoroutine(); n > goroutines+20 {
				t.Errorf("hour %d: %d goroutines, %d at first", hour, n, goroutines)
			}
		}
		time.Sleep(2 * time.Minute) // the last lost ones hear of it
		synctest.Wait()
		d.mu.Lock()
		t.Logf("%v", d.count)
		d.mu.Unlock()
		for _, k := range d.all {
			d.check(k)
			if k.told == nil && !k.hold.Held() {
				t.Errorf("%s is not held", k.key)
			}
		}
		if err := d.locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := memory.List(context.Background()); err != nil || len(left) > 0 {
			t.Errorf("%d rows are left, %v", len(left), err)
		}
	})
}

// fails lets some renewals fail, and all of them at times, though never for so
// long that a lease ends.
func (d *keptDay) fails(ctx context.Context, op string, do func() error) error {
	if op != "renew" {
		return do()
	}
	d.mu.Lock()
	d.count["renewals"]++
	down := time.Now().Before(d.down)
	if rand.N(2000) == 0 {
		d.down = time.Now().Add(rand.N(5 * time.Second))
		d.count["outages"]++
	}
	d.mu.Unlock()
	gone := fmt.Errorf("%w: connection reset", repository.ErrTransient)
	switch fate := rand.N(1000); {
	case down || fate < 20:
		return gone
	case fate < 40:
		return errors.New("permission denied")
	case fate < 60: // executed, and the answer is lost
		do()
		return gone
	case fate < 63:
		<-ctx.Done()
		return gone
	case fate < 80: // late
		err := do()
		time.Sleep(rand.N(3 * time.Second))
		return err
	}
	return do()
}

func (d *keptDay) lost(err *registry.LostError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err.Reason == registry.LossClosed {
		return
	}
	k := d.all[err.Key]
	k.told = err
	d.count["losses told"]++
	switch {
	case k.deleted.IsZero():
		d.t.Errorf("a hold with its row was called lost: %v", err)
	case time.Since(k.deleted) > k.ttl:
		d.t.Errorf("told %v after the row of %s was deleted, the TTL is %v", time.Since(k.deleted), k.key, k.ttl)
	case err.Reason != registry.LossDeleted && err.Reason != registry.LossGone: // Unlock may be unable to look
		d.t.Errorf("deleted by an operator, and told %v", err)
	}
}

// lock locks k anew.
func (d *keptDay) lock(k *kept) {
	hold, err := d.locks.Obtain(k.key).LockContext(context.Background(), registry.WithTTL(k.ttl), registry.WithRenewal(true))
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k.hold, k.deleted, k.told = hold, time.Time{}, nil
}

// step gives one lock back and takes it again, or deletes its row.
func (d *keptDay) step(k *kept) {
	d.check(k)
	if rand.N(4) == 0 && k.deleted.IsZero() {
		d.mu.Lock()
		k.deleted = time.Now()
		d.count["rows deleted"]++
		d.mu.Unlock()
		operator, err := repository.NewMemory(&d.table)
		if err != nil {
			d.t.Fatal(err)
		}
		d.table.Expire(registry.PathFor(k.key))
		if n, _, err := operator.DeleteExpired(context.Background(), ""); n != 1 || err != nil {
			d.t.Errorf("%d rows deleted, %v", n, err)
		}
		return
	}
	gone := !k.deleted.IsZero()
	if err := k.hold.Unlock(context.Background()); gone != errors.Is(err, registry.ErrLockLost) || !gone && err != nil {
		d.t.Errorf("unlock with the row deleted %v: %v", gone, err)
	}
	synctest.Wait() // the handler has run
	d.mu.Lock()
	d.count["unlocks"]++
	d.mu.Unlock()
	d.lock(k)
}

// check checks that k is not lost without anybody having heard of it.
func (d *keptDay) check(k *kept) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.told == nil && !k.deleted.IsZero() && time.Since(k.deleted) > k.ttl {
		d.t.Errorf("the row of %s was deleted %v ago, and nobody was told", k.key, time.Since(k.deleted))
	}
}
