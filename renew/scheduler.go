package renew

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Lease is what a Scheduler looks after. Its methods must not wait.
type Lease interface {
	// Key orders the leases of one request: requests that overlap then lock
	// rows in the same order.
	Key() string
	// Look looks at the clocks, does what is due without the database, such as
	// reporting that the lease has ended, and says what comes next. False
	// means that there is nothing left to look after.
	Look() (State, bool)
}

// State is what a look at a lease shows.
type State struct {
	// TTL is what to renew the lease for; 0 if it is not to be renewed.
	TTL time.Duration
	// Remaining is how long the lease can still be relied on.
	Remaining time.Duration
	// Next is when to look again at the latest; a renewal may come earlier.
	Next time.Duration
}

// Verdict is what a renewal says about one lease.
type Verdict int

const (
	Kept  Verdict = iota + 1 // it has been prolonged
	Again                    // not this time, for a reason that may pass
	Over                     // it is lost: do not ask again
)

// Renew prolongs leases to at least ttl from now, in one request, and returns a
// verdict for the first of them, in their order, as many as it could take; it
// is called again for the rest. An error means Again for all, and so does no
// verdict. It has to return when ctx ends, or a little later, whatever the
// database does.
type Renew[L Lease] func(ctx context.Context, leases []L, ttl time.Duration) ([]Verdict, error)

// The sizes and times of a scheduler.
const (
	batchSize   = 256         // leases in one request
	parallel    = 4           // requests at once
	longestLook = time.Second // timers stand still while a machine is suspended
	jump        = 50 * time.Millisecond

	// A lease is due when five eighths of its TTL are left: as its holder does
	// not use the last twentieth, that is a third of the TTL after the last
	// renewal. Between due and the end there is time for three tries.
	dueEighths = 5
)

// limit is the time of one request.
func limit(ttl time.Duration) time.Duration {
	return min(max(ttl/5, 100*time.Millisecond), 2*time.Second)
}

// step is the distance of the moments at which leases of one TTL are renewed:
// at the last one before they are due, those of a whole step in one go.
func step(ttl time.Duration) time.Duration { return max(ttl/30, time.Microsecond) }

// Scheduler looks after leases. It is safe for concurrent use.
type Scheduler[L Lease] struct {
	renew Renew[L]

	mu      sync.Mutex // guards the fields below and all entries; never held while a lease is looked at
	entries entries[L]
	timer   *time.Timer
	wake    time.Time // when timer runs off; zero if it is not set
	beating bool      // a beat is under way, and sets the timer when it is done
	stopped bool
	queue   []due[L]  // waiting for one of the requests to return; the most urgent first
	asking  int       // requests under way
	base    time.Time // from which steps count, and where both clocks were compared
	ahead   time.Duration
}

// New returns a scheduler that renews with renew. It costs nothing until it has
// a lease.
func New[L Lease](renew Renew[L]) *Scheduler[L] {
	// Somewhere in the past: processes that start together do not step together.
	return &Scheduler[L]{renew: renew, base: time.Now().Add(-rand.N(time.Hour))}
}

// Keep begins to look after lease, which has just been granted, until Forget,
// or until a look or a verdict says that it is over. state is what a look at it
// shows at now; the first one may come before Keep returns. e is a zero Entry,
// which belongs to the scheduler from then on.
func (s *Scheduler[L]) Keep(e *Entry[L], lease L, state State, now time.Time) {
	e.scheduler, e.lease, e.index = s, lease, -1
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan(e, state, now) {
		e.at = now // it took long to be granted
	}
	if !s.stopped {
		heap.Push(&s.entries, e)
		s.setTimer(now)
	}
}

// Forget ends the looking after. A request that is under way may still be
// executed.
func (e *Entry[L]) Forget() {
	e.scheduler.mu.Lock()
	defer e.scheduler.mu.Unlock()
	e.scheduler.remove(e)
}

// Changed has the lease looked at now: it was renewed by other means.
func (e *Entry[L]) Changed() {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.lookNow(e, now)
	s.setTimer(now)
}

func (s *Scheduler[L]) lookNow(e *Entry[L], now time.Time) {
	if e.index >= 0 { // else a beat has it, and a look that was too early does no harm
		e.at = now
		heap.Fix(&s.entries, e.index)
	}
}

// Stop forgets all leases.
func (s *Scheduler[L]) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, e := range s.entries {
		e.gone, e.index = true, -1
	}
	s.entries, s.queue = nil, nil
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *Scheduler[L]) remove(e *Entry[L]) {
	e.gone = true
	if e.index >= 0 {
		heap.Remove(&s.entries, e.index)
	}
}

// plan decides when to look at e next, and reports whether it is due for a
// renewal now. The caller holds s.mu and puts e into the heap.
func (s *Scheduler[L]) plan(e *Entry[L], state State, now time.Time) (due bool) {
	wait := state.Next
	if state.TTL > 0 && !e.asking {
		left, step := state.Remaining-state.TTL/8*dueEighths, step(state.TTL)
		pause := e.notBefore.Sub(now)
		switch {
		case left > step:
			left += rand.N(step) // what came in one burst spreads
			wait = min(wait, left-(now.Sub(s.base)+left)%step)
		case pause > 0:
			wait = min(wait, pause)
		default:
			due = true
		}
	}
	if wait <= 0 {
		wait = time.Millisecond
	}
	e.at = now.Add(wait)
	return due
}

// setTimer sets the timer to the first look. It stays where it is if that is
// early enough, so that locks that come and go do not touch it; the beat that
// finds nothing to do ends it. The caller holds s.mu.
func (s *Scheduler[L]) setTimer(now time.Time) {
	if s.beating || s.stopped || len(s.entries) == 0 {
		return
	}
	at := s.entries[0].at
	if last := now.Add(longestLook); at.After(last) {
		at = last
	}
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(at.Sub(now), s.beat)
	case s.wake.IsZero() || at.Before(s.wake):
		s.timer.Reset(at.Sub(now))
	default:
		return
	}
	s.wake = at
}

// beat looks at the leases whose time has come and asks for those that are due.
func (s *Scheduler[L]) beat() {
	s.mu.Lock()
	if s.beating || s.stopped {
		s.mu.Unlock()
		return
	}
	s.beating, s.wake = true, time.Time{}
	var looked []*Entry[L]
	now := time.Now()
	all := s.jumped(now)
	for len(s.entries) > 0 && (all || !s.entries[0].at.After(now)) {
		looked = append(looked, heap.Pop(&s.entries).(*Entry[L]))
	}
	s.mu.Unlock()

	states := make([]State, len(looked))
	over := make([]bool, len(looked))
	for i, e := range looked {
		var ok bool
		states[i], ok = e.lease.Look()
		over[i] = !ok
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.beating = false
	now = time.Now()
	for i, e := range looked {
		if over[i] || e.gone || s.stopped {
			e.gone = true
			continue
		}
		if s.plan(e, states[i], now) {
			e.asking = true
			s.queue = append(s.queue, due[L]{e, states[i].TTL, now.Add(states[i].Remaining)})
		}
		heap.Push(&s.entries, e)
	}
	slices.SortStableFunc(s.queue, due[L].before)
	s.ask()
	s.setTimer(now)
}

// jumped reports whether the wall clock has moved against the monotonic one
// since the last time it did: then every lease is looked at. The caller holds
// s.mu.
func (s *Scheduler[L]) jumped(now time.Time) bool {
	ahead := now.Round(0).Sub(s.base.Round(0)) - now.Sub(s.base)
	if (ahead - s.ahead).Abs() < jump {
		return false
	}
	s.ahead = ahead
	return true
}

// ask starts requests while there are some to start and not too many under
// way: each for the most urgent lease, and others of its TTL. The caller holds
// s.mu.
func (s *Scheduler[L]) ask() {
	for s.asking < parallel && len(s.queue) > 0 {
		var batch []*Entry[L]
		ttl := s.queue[0].ttl
		s.queue = slices.DeleteFunc(s.queue, func(d due[L]) bool {
			if d.entry.gone {
				return true
			}
			if d.ttl != ttl || len(batch) == batchSize {
				return false
			}
			batch = append(batch, d.entry)
			return true
		})
		if len(batch) > 0 {
			slices.SortFunc(batch, func(a, b *Entry[L]) int { return cmp.Compare(a.lease.Key(), b.lease.Key()) })
			s.asking++
			go s.request(batch, ttl)
		}
	}
}

func (s *Scheduler[L]) request(batch []*Entry[L], ttl time.Duration) {
	leases := make([]L, len(batch))
	for i, e := range batch {
		leases[i] = e.lease
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit(ttl))
	verdicts, err := s.renew(ctx, leases, ttl)
	cancel()
	if err != nil || len(verdicts) == 0 {
		verdicts = slices.Repeat([]Verdict{Again}, len(leases))
	}
	s.mu.Lock()
	s.asking--
	now, luck := time.Now(), rand.Float64()
	for i, e := range batch {
		e.asking = false
		if i < len(verdicts) {
			e.take(verdicts[i], ttl, now, luck)
		}
		s.lookNow(e, now)
	}
	s.ask()
	s.mu.Unlock()
	s.beat()
}
