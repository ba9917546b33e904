// Package registrytest is what package registry promises, as tests that run on
// any repository.LockRepository. The memory model runs them inside a
// testing/synctest bubble, every database of this project in real time. A
// repository of your own runs them with one line:
//
//	func TestRegistry(t *testing.T) { registrytest.Run(t, newBackend) }
//
// It needs nothing but the standard library.
package registrytest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// Backend gives the suite repositories on one store. The suite asks for a
// fresh one per clause; it may be the same database with another region.
type Backend struct {
	// Open returns a new repository of the given client. All of a backend see
	// the same locks. The suite closes them.
	Open func(t *testing.T, clientID string) repository.LockRepository
	// Expire ends the lease on a LOCK_KEY now.
	Expire func(t *testing.T, key string)
	// Options are further options for a registry of the suite. Clauses about one
	// of them set it themselves. Nil means none.
	Options func(t *testing.T) []registry.Option
	// Bubble runs a clause, for stores whose time is testing/synctest's. Nil
	// runs it directly.
	Bubble func(t *testing.T, clause func(t *testing.T))
}

// Run runs every clause as a subtest of t. In real time those that wait for
// renewals and ends of leases run in parallel, as far as go test's -parallel
// allows.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	for _, group := range [][]clause{lockClauses, holdClauses, renewClauses, nestedClauses, executeClauses,
		waitClauses, handOverClauses, wakeUpClauses, batchClauses, cacheClauses, faultClauses, lateClauses, purgeClauses, unlockAfterClauses, closeClauses} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { c.runOn(t, newBackend(t)) })
		}
	}
	t.Run("leases", func(t *testing.T) { // returns when its parallel subtests have ended
		for _, c := range slices.Concat(keepClauses, lossClauses) {
			t.Run(c.name, func(t *testing.T) {
				b := newBackend(t)
				if b.Bubble == nil {
					t.Parallel()
				}
				c.runOn(t, b)
			})
		}
	})
}

func (c clause) runOn(t *testing.T, b Backend) {
	bubble := b.Bubble
	if bubble == nil {
		bubble = func(t *testing.T, clause func(*testing.T)) { clause(t) }
	}
	bubble(t, func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the rule: %s", c.rule)
			}
		})
		c.run(t, b)
	})
}

type clause struct {
	name, rule string
	run        func(t *testing.T, b Backend)
}

// process is one registry with a repository of its own, as a process has it.
type process struct {
	*registry.JdbcLockRegistry
	repo *Around
	t    *testing.T
}

// start makes a process. Waiting is brisk unless opts say otherwise; losses
// are reported to the test's log.
func start(t *testing.T, b Backend, clientID string, opts ...registry.Option) process {
	t.Helper()
	repo := &Around{LockRepository: b.Open(t, clientID)}
	opts = append([]registry.Option{
		registry.WithIdleBetweenTries(20 * time.Millisecond),
		registry.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	if b.Options != nil {
		opts = append(b.Options(t), opts...)
	}
	var store repository.LockRepository = repo
	if _, ok := repo.LockRepository.(repository.BatchRepository); ok {
		store = batchAround{repo}
	}
	r, err := registry.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("close the registry: %v", err)
		}
		if err := repo.Close(); err != nil {
			t.Errorf("close the repository: %v", err)
		}
	})
	return process{r, repo, t}
}

// lock acquires key or fails the test.
func (p process) lock(key string, opts ...registry.LockOption) *registry.Hold {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	hold, err := p.Obtain(key).LockContext(ctx, opts...)
	if err != nil {
		p.t.Fatalf("lock %q: %v", key, err)
	}
	return hold
}

// refused makes one attempt and fails the test if it succeeds.
func (p process) refused(key string) {
	p.t.Helper()
	hold, err := p.tryLock(key)
	if err == nil {
		hold.Unlock(context.Background())
		p.t.Fatalf("lock %q: acquired, want it held", key)
	}
	if !errors.Is(err, registry.ErrNotAcquired) {
		p.t.Fatalf("lock %q: %v, want ErrNotAcquired", key, err)
	}
}

// tryLock is TryLockContext, repeated while the database says "try again".
func (p process) tryLock(key string, opts ...registry.LockOption) (*registry.Hold, error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		hold, err := p.Obtain(key).TryLockContext(context.Background(), opts...)
		if !errors.Is(err, registry.ErrUnavailable) || time.Since(start) > 10*time.Second {
			return hold, err
		}
	}
}

func (p process) unlock(h *registry.Hold, want error) {
	p.t.Helper()
	if err := h.Unlock(context.Background()); !errors.Is(err, want) || want == nil && err != nil {
		p.t.Fatalf("unlock %q: %v, want %v", h.Key(), err, want)
	}
}

// rows is how many leases the store has.
func (p process) rows() int {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		list, err := p.repo.LockRepository.List(context.Background())
		if err == nil {
			return len(list)
		}
		if !errors.Is(err, repository.ErrTransient) || time.Since(start) > 10*time.Second {
			p.t.Fatal(err)
		}
	}
}

// noRows waits until the store has no lease left.
func (p process) noRows(within time.Duration) {
	p.t.Helper()
	for start := time.Now(); p.rows() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > within {
			p.t.Fatalf("%d rows are left after %v", p.rows(), within)
		}
	}
}

// ends waits for c, which a goroutine closes or sends to.
func ends[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing happened", what)
		panic("unreachable")
	}
}

// goes runs f and returns a channel that its error comes through.
func goes(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}
