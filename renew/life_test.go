package renew_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/renew"
)

// TestLossIsNoticed: leases that are not renewed are looked at when they end,
// not before and not after, and those whose verdict is Over never again.
func TestLossIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		var leases []*lease
		for i := range 500 {
			ttl := time.Duration(rand.N(int64(40*time.Second))) + 1
			l := &lease{store: s, key: fmt.Sprint(i), end: time.Now().Add(ttl)}
			state, _ := l.Look()
			l.place = s.scheduler.Keep(l, state)
			leases = append(leases, l)
			time.Sleep(time.Millisecond)
		}
		over := s.grantMany(100, 10*time.Second)
		for _, l := range over {
			l.gone = time.Now()
		}
		time.Sleep(time.Minute)
		for _, l := range leases {
			if l.saw != l.end {
				t.Errorf("lease %s ended, and was seen %v later", l.key, l.saw.Sub(l.end))
			}
		}
		for _, l := range over {
			if len(l.asked) != 1 || !l.saw.IsZero() {
				t.Errorf("%s, which was over, was asked about %d times, looked at: %v", l.key, len(l.asked), !l.saw.IsZero())
			}
		}
	})
}

// TestEmptyRests: a scheduler without leases looks at nothing and asks nothing,
// and has no goroutine, or the bubble would not end.
func TestEmptyRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t) // not stopped
		for _, l := range s.grantMany(1000, time.Second) {
			l.forget()
		}
		for _, l := range s.grantMany(100, time.Second) {
			l.gone = time.Now()
		}
		time.Sleep(2 * time.Second)
		looks, requests := s.looks, len(s.requests)
		time.Sleep(time.Hour)
		if s.looks != looks || len(s.requests) != requests {
			t.Errorf("%d looks and %d requests about nothing", s.looks-looks, len(s.requests)-requests)
		}
		l := s.grant("again", time.Second) // and wakes again
		time.Sleep(time.Minute)
		alive(t, []*lease{l})
		s.scheduler.Stop()
		l = s.grant("stopped", time.Second)
		time.Sleep(time.Minute)
		l.place.Changed()
		l.place.Forget()
		if !l.saw.IsZero() || len(l.asked) > 0 {
			t.Error("it goes on after Stop")
		}
	})
}

// TestChanged: a lease that was renewed by other means is not asked about before
// a third of its new time has passed, and one that was cut short ends on time.
func TestChanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		l := s.grant("key", 30*time.Second)
		for range 100 {
			time.Sleep(5 * time.Second)
			s.mu.Lock()
			l.end = time.Now().Add(trusted(l.ttl))
			s.mu.Unlock()
			l.place.Changed()
		}
		if n := len(l.asked); n > 0 {
			t.Errorf("asked %d times about a lease that its holder renews", n)
		}
		s.mu.Lock()
		l.end = time.Now().Add(7 * time.Millisecond)
		l.ttl = 0
		s.mu.Unlock()
		l.place.Changed()
		time.Sleep(time.Second)
		if l.saw != l.end {
			t.Errorf("it ended at %v, seen at %v", l.end, l.saw)
		}
	})
}

// TestAnswerDuringLook: a look that began before an answer came, and ends after
// it, does not ask again for what was answered.
func TestAnswerDuringLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looking, answered chan struct{}
		l := &slowLease{look: func() {
			if looking != nil {
				close(looking)
				looking = nil
				<-answered
			}
		}}
		asked := 0
		ask := make(chan struct{})
		s := renew.New(func(context.Context, []*slowLease, time.Duration) ([]renew.Verdict, error) {
			asked++
			<-ask
			l.set(30 * time.Second)
			return []renew.Verdict{renew.Kept}, nil
		})
		l.set(10 * time.Second)
		state, _ := l.Look()
		place := s.Keep(l, state)
		time.Sleep(2 * time.Second) // it is due, and the request does not return
		if asked != 1 {
			t.Fatalf("asked %d times", asked)
		}
		answered = make(chan struct{})
		looking = make(chan struct{})
		saw := looking
		place.Changed()
		<-saw
		close(ask)
		synctest.Wait()
		close(answered) // the look goes on with what it saw before
		time.Sleep(5 * time.Second)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		place.Forget()
		time.Sleep(time.Minute)
	})
}

// slowLease has a look that reads first, and then takes its time.
type slowLease struct {
	mu   sync.Mutex
	end  time.Time
	look func()
}

func (l *slowLease) set(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = time.Now().Add(d)
}

func (l *slowLease) Key() string { return "key" }

func (l *slowLease) Look() (renew.State, bool) {
	l.mu.Lock()
	left := time.Until(l.end)
	l.mu.Unlock()
	l.look()
	return renew.State{TTL: 30 * time.Second, Remaining: left, Next: left}, left > 0
}

// TestRaces lets everything meet everything, and ends with nothing left. It
// says most under the race detector.
func TestRaces(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t)
			s.answer = func(ctx context.Context, leases []*lease) (int, error) {
				switch rand.N(6) {
				case 0:
					return 0, errDown
				case 1:
					time.Sleep(rand.N(20 * time.Millisecond))
				case 2:
					return rand.N(len(leases)), nil
				}
				return len(leases), nil
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 100 {
						l := s.grant(fmt.Sprint(i, "-", j), rand.N(50*time.Millisecond)+time.Millisecond)
						for range rand.N(4) {
							time.Sleep(rand.N(20 * time.Millisecond))
							l.place.Changed()
						}
						if rand.N(5) > 0 {
							go l.place.Forget()
							l.forget()
						} else {
							s.mu.Lock()
							l.gone = time.Now()
							s.mu.Unlock()
						}
					}
				})
			}
			if rand.N(2) == 0 {
				time.Sleep(rand.N(2 * time.Second))
				s.scheduler.Stop()
			}
			all.Wait()
			time.Sleep(time.Second) // then all leases have ended
			synctest.Wait()
			looks, requests := s.looks, len(s.requests)
			time.Sleep(time.Hour)
			if s.looks != looks || len(s.requests) != requests {
				t.Errorf("%d looks and %d requests about nothing", s.looks-looks, len(s.requests)-requests)
			}
		})
	}
}
