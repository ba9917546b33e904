package registry_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
)

const (
	cutTTL = 30 * time.Second // so long that no row goes by itself before freeAgain
	// A statement's five seconds and the quarter that its driver gets beyond
	// them, a pause of half as long, and one more statement on a loaded machine.
	freeAgain = 14 * time.Second
	// Of a lease that is renewed: it may well end, and the test has to see it.
	renewTTL = 1500 * time.Millisecond
)

var quietly = []registry.Option{registry.WithTTL(cutTTL), registry.WithLogger(slog.New(slog.DiscardHandler))}

// TestCuts breaks the network in the middle of every operation, in 40 ways
// each. Never do two believe that they have the lock, no release is reported as
// a lost lock, what a request left that nobody waits for is gone soon, and what
// arrives late harms nobody.
func TestCuts(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		others := newRegistry(t, db.DB, quietly...)
		room := make(chan struct{}, 12)
		var all sync.WaitGroup
		for name, op := range map[string]operation{"acquire": cutAcquire, "renew": cutRenew, "release": cutRelease} {
			all.Go(func() {
				t.Run(name, func(t *testing.T) {
					quiet, y := new(tally), new(tally)
					warm := op.play(t, db, others, cut{}, quiet)
					cold := op.play(t, db, others, cut{cold: true}, quiet)
					if quiet.errors > 0 {
						t.Error("it fails without a fault")
					}
					var group sync.WaitGroup
					for _, c := range cuts(warm.bytes, cold.bytes) {
						group.Go(func() {
							room <- struct{}{}
							defer func() { <-room }()
							t.Run(c.String(), func(t *testing.T) { op.play(t, db, others, c, y) })
						})
					}
					group.Wait()
					t.Logf("%s %s: %v bytes, %v with the connection; %d calls failed, %d of them left a row, %d leases were lost; free after %v at the latest (%s)",
						db.Vendor, name, warm.bytes, cold.bytes, y.errors, y.ghosts, y.lost, y.longest.Round(time.Millisecond), y.slowest)
				})
			})
		}
		all.Wait()
		checkRows(t, db, 0)
	})
}

// tally is what the cuts of one operation did.
type tally struct {
	mu      sync.Mutex
	errors  int // calls that failed
	ghosts  int // of those, that left a row
	lost    int // leases that ended before they could be renewed
	longest time.Duration
	slowest string // the cut after which the key was free the latest
}

// operation plays a scene: has the operation cut, and checks what comes of it.
type operation func(*scene)

func (op operation) play(t *testing.T, db *testdb.DB, others *registry.JdbcLockRegistry, c cut, y *tally) *scene {
	s := &scene{cut: c, db: db, proxy: db.Proxy(t), others: others, tally: y}
	s.believers = believers{t: t, key: t.Name()}
	s.through = db.Through(t, s.proxy)
	s.locks = newRegistry(t, s.through.DB, quietly...)
	// Prepares every statement on the one connection there is.
	warm := s.lock(s.locks, "warm "+s.key, cutTTL)
	s.ok(warm.Renew(t.Context(), registry.WithTTL(cutTTL)))
	s.ok(warm.Unlock(t.Context()))
	defer watch(&s.believers)()
	op(s)
	s.proxy.Heal()
	s.proxy.Cut() // drivers that still wait for an answer go home
	return s
}

// cutAcquire: the call is a try, or a wait that its time or its context ends.
func cutAcquire(s *scene) {
	const wait = 300 * time.Millisecond
	ctx, opts, most := s.t.Context(), []registry.LockOption{registry.WithTTL(cutTTL)}, wait
	switch s.n % 3 {
	case 0: // a request of a try has a second and a quarter
		opts, most = append(opts, registry.WithWait(0)), 1250*time.Millisecond
	case 1:
		opts, most = append(opts, registry.WithWait(wait)), wait+1250*time.Millisecond
	case 2:
		bounded, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ctx = bounded
	}
	var hold *registry.Hold
	took, err := s.run(func() (err error) {
		if hold, err = s.locks.Obtain(s.key).LockContext(ctx, opts...); err == nil {
			s.add(hold)
		}
		return err
	})
	s.inTime(took, most)
	s.arrive(givenUp)
	if err == nil {
		if _, err := s.others.Obtain(s.key).TryLockContext(s.t.Context()); !errors.Is(err, registry.ErrNotAcquired) {
			s.t.Errorf("another's try beside a hold = %v", err)
		}
		s.ok(hold.Unlock(s.t.Context()))
	} else if !errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		s.t.Errorf("lock = %v, and nobody else has it", err)
	}
	s.succeed()
}

// cutRelease: the row is there or not, but the lock was not lost.
func cutRelease(s *scene) {
	hold := s.lock(s.locks, s.key, cutTTL)
	s.add(hold)
	took, err := s.run(func() error { return hold.Unlock(s.t.Context()) })
	s.inTime(took, 6250*time.Millisecond)
	if err == nil && s.rows() > 0 {
		s.t.Error("it was given back, and the row is there")
	}
	if err != nil && (errors.Is(err, registry.ErrLockLost) || !errors.Is(err, registry.ErrUnavailable)) {
		s.t.Errorf("unlock = %v", err)
	}
	s.arrive(givenUp)
	s.succeed()
}

// cutRenew: the lease goes on, from then or to its old end; after it has ended
// nothing revives it.
func cutRenew(s *scene) {
	began := time.Now() // of what is known to stand
	hold := s.lock(s.locks, s.key, renewTTL)
	s.add(hold)
	asked := time.Now()
	took, err := s.run(func() error { return hold.Renew(s.t.Context(), registry.WithTTL(renewTTL)) })
	s.inTime(took, renewTTL)
	if err == nil {
		began = asked
	}
	// ended fails the test if the lease was lost before its time.
	ended := func(what string, err error) {
		var lost *registry.LostError
		if age := time.Since(began); !errors.As(err, &lost) || lost.Reason == registry.LossGone || age < renewTTL*9/10 {
			s.t.Errorf("%s after %v = %v", what, age, err)
		}
		s.note(func(y *tally) { y.lost++ })
	}
	if err != nil && !errors.Is(err, registry.ErrUnavailable) {
		ended("renew", err)
	}
	s.arrive(givenUp)
	if s.n%3 == 0 {
		if err := hold.Unlock(s.t.Context()); err != nil {
			ended("unlock", err)
		}
		s.succeed()
		return
	}
	s.proxy.BlackHole() // no other renewal gets through
	if s.n%3 == 1 {     // nobody waits for the row: what is late finds it expired
		time.Sleep(renewTTL + 50*time.Millisecond)
		s.proxy.Heal()
		s.arrive(succeeded)
		if hold, err := s.others.Obtain(s.key).TryLockContext(s.t.Context()); err != nil {
			s.t.Errorf("try after the end of the lease = %v", err)
		} else {
			s.ok(hold.Unlock(s.t.Context()))
		}
	}
	next := s.lockSoon(s.others)
	if hold.Held() {
		s.t.Error("it is held by two")
	}
	s.proxy.Heal()
	s.have(next)
	for what, err := range map[string]error{"renew": hold.Renew(s.t.Context()), "unlock": hold.Unlock(s.t.Context())} {
		if hold.Held() || !errors.Is(err, registry.ErrLockLost) {
			s.t.Errorf("%s of a lease that has ended = %v; held: %v", what, err, hold.Held())
		}
	}
	s.succeed()
}
