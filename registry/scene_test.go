package registry_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
)

// cut is one way in which the network fails in the middle of an operation. Its
// zero value is none.
type cut struct {
	n      int // its number, which also varies what is not about the network
	kind   string
	to     testdb.Direction
	after  int    // for a cut: how many bytes pass
	cold   bool   // for a cut: the operation has to connect and prepare first
	hangUp bool   // for late delivery: the client learns that the connection is gone
	when   moment // for late delivery, and for the end of a black hole
}

const breaks, late, blackHole, reset = "cut", "late", "black hole", "reset"

// moment is when what was late arrives.
type moment string

const (
	during     moment = "during"     // while the caller waits
	givenUp    moment = "given up"   // when the call has returned
	succeeded  moment = "succeeded"  // while a successor has the key
	afterwards moment = "afterwards" // when that one has given it back
)

func (c cut) String() string {
	name := fmt.Sprintf("%02d %s %s %s", c.n, c.kind, [2]string{"request", "reply"}[c.to], c.when)
	switch {
	case c.cold:
		name += fmt.Sprintf("after %d of a new connection", c.after)
	case c.kind == breaks:
		name += fmt.Sprintf("after %d", c.after)
	case c.hangUp:
		name += ", hung up"
	}
	return strings.TrimSpace(name)
}

// cuts are 40 of them; warm and cold say how many bytes the operation takes.
func cuts(warm, cold [2]int) []cut {
	var all []cut
	for _, to := range []testdb.Direction{testdb.ToServer, testdb.ToClient} {
		for i := range 5 {
			all = append(all, cut{kind: breaks, to: to, after: i * warm[to] / 4})
		}
		for i := range 4 {
			all = append(all, cut{kind: breaks, to: to, after: (2*i + 1) * cold[to] / 8, cold: true})
		}
		for _, when := range []moment{during, givenUp, succeeded, afterwards} {
			all = append(all, cut{kind: late, to: to, when: when}, cut{kind: late, to: to, when: when, hangUp: true})
		}
		all = append(all, cut{kind: blackHole, to: to, when: during}, cut{kind: blackHole, to: to, when: givenUp}, cut{kind: reset, to: to})
	}
	for i := range all {
		all[i].n = i
	}
	return all
}

// scene is one cut of one operation: a registry behind the network that fails,
// another that reaches the database directly, and one key.
type scene struct {
	cut
	believers
	db, through   *testdb.DB
	proxy         *testdb.Proxy
	locks, others *registry.JdbcLockRegistry
	tally         *tally
	held          *testdb.Held // what is late
	arrived       bool         // it is not late any more
	bytes         [2]int       // that the operation took
}

// run has an operation cut, and returns its error and how long it took.
func (s *scene) run(f func() error) (took time.Duration, err error) {
	s.breakDown()
	began, result := time.Now(), make(chan error, 1)
	go func() { result <- f() }()
	s.unfold()
	select {
	case err = <-result:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the operation does not return")
	}
	took = time.Since(began)
	s.bytes = [2]int{s.proxy.Bytes(testdb.ToServer), s.proxy.Bytes(testdb.ToClient)}
	if err != nil {
		rows := s.rows()
		s.note(func(y *tally) { y.errors, y.ghosts = y.errors+1, y.ghosts+rows })
	}
	return took, err
}

// breakDown sets the fault.
func (s *scene) breakDown() {
	if s.cold {
		s.proxy.Cut()
	} else {
		s.ok(s.through.Ping())
	}
	s.proxy.ResetBytes()
	switch {
	case s.kind == "":
	case s.kind == breaks:
		s.proxy.CutAfter(s.to, s.after)
	case s.to == testdb.ToClient:
		s.held = s.proxy.HoldReply(1)
	case s.kind == blackHole:
		s.proxy.BlackHole()
	default:
		s.held = s.proxy.HoldRequest(1)
	}
}

// unfold goes on with the fault while the operation runs.
func (s *scene) unfold() {
	if s.held != nil {
		s.held.Wait(s.t, 20*time.Second)
	}
	switch {
	case s.kind == blackHole && s.held != nil:
		s.proxy.BlackHole()
		s.held.Release() // the server has done it, and its reply is swallowed
	case s.kind == reset:
		s.proxy.Reset()
		s.held.Release() // into nothing
	case s.hangUp:
		s.held.HangUp()
	}
	if s.when == during {
		time.Sleep(100 * time.Millisecond)
		s.arrive(during)
	}
}

// arrive lets arrive what is late, if this is the moment.
func (s *scene) arrive(m moment) {
	switch {
	case s.kind == breaks, s.kind == blackHole && s.when == m:
		s.proxy.Heal()
	case s.kind == late && s.when == m && !s.arrived:
		s.arrived = true
		s.held.Release()
		time.Sleep(50 * time.Millisecond)
	}
}

// succeed lets another call have the key: soon, and for good. Every other one
// is of the registry that was cut, as late requests must not be mixed up with
// later attempts of the same client either.
func (s *scene) succeed() {
	locks := s.others
	if s.n/2%2 == 0 {
		locks = s.locks
	}
	s.have(s.lockSoon(locks))
	s.arrive(afterwards)
	s.ok(s.lockSoon(s.others).Unlock(s.t.Context()))
}

func (s *scene) lockSoon(locks *registry.JdbcLockRegistry) *registry.Hold {
	s.t.Helper()
	began := time.Now()
	hold := s.lock(locks, s.key, cutTTL)
	s.add(hold)
	took := time.Since(began)
	s.note(func(y *tally) {
		if took > y.longest {
			y.longest, y.slowest = took, s.cut.String()
		}
	})
	if took > freeAgain {
		s.t.Errorf("the key was free after %v, want within %v", took, freeAgain)
	}
	return hold
}

// have is the life of a successor's hold.
func (s *scene) have(hold *registry.Hold) {
	s.t.Helper()
	s.arrive(succeeded)
	s.ok(hold.Renew(s.t.Context(), registry.WithTTL(cutTTL)))
	s.ok(hold.Unlock(s.t.Context()))
}

func (s *scene) lock(locks *registry.JdbcLockRegistry, key string, ttl time.Duration) *registry.Hold {
	s.t.Helper()
	hold, err := locks.Obtain(key).TryLockFor(s.t.Context(), 2*cutTTL, registry.WithTTL(ttl))
	if err != nil {
		s.t.Fatal(err)
	}
	return hold
}

func (s *scene) rows() (n int) {
	s.ok(s.db.QueryRow(fmt.Sprintf("SELECT COUNT(*) FROM INT_LOCK WHERE LOCK_KEY = '%s'", registry.PathFor(s.key))).Scan(&n))
	return n
}

func (s *scene) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

// inTime is generous: the machine may be loaded.
func (s *scene) inTime(took, most time.Duration) {
	s.t.Helper()
	if took > most+2*time.Second {
		s.t.Errorf("the call took %v, want %v at most", took, most)
	}
}

func (s *scene) note(change func(*tally)) {
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	change(s.tally)
}
