package renew_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/renew"
)

// store grants leases and answers for them, in virtual time. It checks what
// holds for every request whatever happens.
type store struct {
	t         *testing.T
	scheduler *renew.Scheduler[*lease]

	mu       sync.Mutex                                              // guards the fields below and in all leases; a test has it unless it sleeps
	answer   func(ctx context.Context, leases []*lease) (int, error) // how many it can take; nil: all
	requests []request
	running  int
	looks    int
}

type request struct {
	at  time.Time
	ttl time.Duration
	n   int
}

// lease is one that the store has granted.
type lease struct {
	store *store
	key   string
	ttl   time.Duration // 0: is not to be renewed
	place *renew.Entry[*lease]

	end       time.Time // until when it can be relied on
	saw       time.Time // when its scheduler noticed that it is over
	gone      time.Time // its row; a request that comes later is refused
	forgotten time.Time
	busy      bool // a transaction has its row
	inFlight  bool
	asked     []time.Time
}

func newStore(t *testing.T) *store {
	s := &store{t: t}
	s.scheduler = renew.New(s.renew)
	return s
}

// trusted is the part of a TTL that a holder uses, as package registry has it.
func trusted(ttl time.Duration) time.Duration { return ttl - min(ttl/20, time.Second) }

// grant has a new lease kept alive.
func (s *store) grant(key string, ttl time.Duration) *lease {
	l := &lease{store: s, key: key, ttl: ttl, end: time.Now().Add(trusted(ttl))}
	return l.keep()
}

func (l *lease) keep() *lease {
	state, _ := l.look()
	l.place = new(renew.Entry[*lease])
	l.store.scheduler.Keep(l.place, l, state, time.Now())
	return l
}

func (s *store) grantMany(n int, ttl time.Duration) []*lease {
	leases := make([]*lease, n)
	for i := range leases {
		leases[i] = s.grant(fmt.Sprintf("%v-%05d", ttl, i), ttl)
	}
	return leases
}

func (l *lease) forget() {
	l.place.Forget()
	l.forgotten = time.Now()
}

func (l *lease) Key() string { return l.key }

func (l *lease) Look() (renew.State, bool) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.looks++
	return l.look()
}

func (l *lease) look() (renew.State, bool) {
	left := time.Until(l.end)
	if left <= 0 {
		if l.saw.IsZero() {
			l.saw = time.Now()
		}
		return renew.State{}, false
	}
	return renew.State{TTL: l.ttl, Remaining: left, Next: left}, true
}

// renew is the one request of the scheduler.
func (s *store) renew(ctx context.Context, leases []*lease, ttl time.Duration) ([]renew.Verdict, error) {
	now := time.Now()
	s.mu.Lock()
	s.requests = append(s.requests, request{now, ttl, len(leases)})
	s.running++
	if s.running > 4 || len(leases) == 0 || len(leases) > 256 {
		s.t.Errorf("%d requests at once, this one about %d leases", s.running, len(leases))
	}
	if !slices.IsSortedFunc(leases, func(a, b *lease) int { return compare(a.key, b.key) }) {
		s.t.Error("a request is not sorted by key")
	}
	for _, l := range leases {
		if l.inFlight {
			s.t.Errorf("%s is in two requests at once", l.key)
		}
		if l.ttl != ttl {
			s.t.Errorf("%s, with a TTL of %v, is renewed for %v", l.key, l.ttl, ttl)
		}
		if !l.forgotten.IsZero() && now.After(l.forgotten) || !l.saw.IsZero() && now.After(l.saw) {
			s.t.Errorf("%s is asked about after its end", l.key)
		}
		l.inFlight = true
		l.asked = append(l.asked, now)
	}
	answer := s.answer
	s.mu.Unlock()
	n, err := len(leases), error(nil)
	if answer != nil {
		n, err = answer(ctx, leases)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	for _, l := range leases {
		l.inFlight = false
	}
	if err != nil {
		return nil, err
	}
	verdicts := make([]renew.Verdict, n)
	for i, l := range leases[:n] {
		verdicts[i] = renew.Kept
		if !l.gone.IsZero() && now.After(l.gone) || !l.saw.IsZero() {
			verdicts[i] = renew.Over
		} else if l.busy {
			verdicts[i] = renew.Again
		} else if end := now.Add(trusted(ttl)); end.After(l.end) {
			l.end = end
		}
	}
	return verdicts, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// since counts the requests from start on.
func (s *store) since(start time.Time) int {
	n := 0
	for _, r := range s.requests {
		if !r.at.Before(start) {
			n++
		}
	}
	return n
}

var errDown = errors.New("connection refused")

// takes makes every answer take about d.
func (s *store) takes(d time.Duration) {
	s.answer = func(_ context.Context, leases []*lease) (int, error) {
		time.Sleep(d/2 + rand.N(d))
		return len(leases), nil
	}
}

// bubble runs f on a store in virtual time.
func bubble(t *testing.T, f func(t *testing.T, s *store)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.mu.Lock()
		f(t, s)
		s.scheduler.Stop()
		s.sleep(time.Minute) // requests under way return
		s.mu.Unlock()
	})
}

// sleep lets the others have mu for d, and until all of them wait.
func (s *store) sleep(d time.Duration) {
	s.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
}

// alive checks that no lease has ended.
func alive(t *testing.T, leases []*lease) {
	t.Helper()
	ended := 0
	for _, l := range leases {
		if left := time.Until(l.end); left <= 0 {
			ended++
		}
	}
	if ended > 0 {
		t.Errorf("%d of %d leases have ended", ended, len(leases))
	}
}
