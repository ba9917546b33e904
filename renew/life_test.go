package renew_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
			leases = append(leases, (&lease{store: s, key: fmt.Sprint(i), end: time.Now().Add(ttl)}).keep())
			s.sleep(time.Millisecond)
		}
		over := s.grantMany(100, 10*time.Second)
		for _, l := range over {
			l.gone = time.Now()
		}
		s.sleep(time.Minute)
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
	bubble(t, func(t *testing.T, s *store) {
		for _, l := range s.grantMany(1000, time.Second) {
			l.forget()
		}
		for _, l := range s.grantMany(100, time.Second) {
			l.gone = time.Now()
		}
		s.sleep(2 * time.Second)
		looks, requests := s.looks, len(s.requests)
		s.sleep(time.Hour)
		if s.looks != looks || len(s.requests) != requests {
			t.Errorf("%d looks and %d requests about nothing", s.looks-looks, len(s.requests)-requests)
		}
		l := s.grant("again", time.Second) // and wakes again
		s.sleep(time.Minute)
		alive(t, []*lease{l})
		s.scheduler.Stop()
		l = s.grant("stopped", time.Second)
		s.sleep(time.Minute)
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
			s.sleep(5 * time.Second)
			l.end = time.Now().Add(trusted(l.ttl))
			l.place.Changed()
		}
		if n := len(l.asked); n > 0 {
			t.Errorf("asked %d times about a lease that its holder renews", n)
		}
		l.end = time.Now().Add(7 * time.Millisecond)
		l.ttl = 0
		l.place.Changed()
		s.sleep(time.Second)
		if l.saw != l.end {
			t.Errorf("it ended at %v, seen at %v", l.end, l.saw)
		}
	})
}

// TestAnswerDuringLook: a look that began before an answer came, and ends after
// it, does not ask again for what was answered.
func TestAnswerDuringLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLease{}
		var asked atomic.Int64
		answer := make(chan struct{})
		s := renew.New(func(context.Context, []*slowLease, time.Duration) ([]renew.Verdict, error) {
			asked.Add(1)
			<-answer
			l.set(30*time.Second, nil)
			return []renew.Verdict{renew.Kept}, nil
		})
		goOn := make(chan struct{})
		l.set(10*time.Second, nil)
		state, _ := l.Look()
		place := new(renew.Entry[*slowLease])
		s.Keep(place, l, state, time.Now())
		time.Sleep(2 * time.Second)
		if asked.Load() != 1 {
			t.Fatalf("asked %d times", asked.Load())
		}
		l.set(8*time.Second, goOn)
		place.Changed()
		synctest.Wait() // it has looked, and hangs
		close(answer)
		synctest.Wait()
		close(goOn) // with what it saw before
		time.Sleep(5 * time.Second)
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
		place.Forget()
	})
}

// slowLease has a look that reads first, and then takes its time.
type slowLease struct {
	mu   sync.Mutex // guards the fields below
	end  time.Time
	goOn chan struct{} // nil: it takes none
}

func (l *slowLease) set(left time.Duration, goOn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end, l.goOn = time.Now().Add(left), goOn
}

func (l *slowLease) Key() string { return "key" }

func (l *slowLease) Look() (renew.State, bool) {
	l.mu.Lock()
	left, goOn := time.Until(l.end), l.goOn
	l.mu.Unlock()
	if goOn != nil {
		<-goOn
	}
	return renew.State{TTL: 30 * time.Second, Remaining: left, Next: left}, left > 0
}

// TestRaces lets everything meet everything, and ends with nothing left. It
// says most under the race detector.
func TestRaces(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, s *store) {
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
						s.mu.Lock()
						l := s.grant(fmt.Sprint(i, "-", j), rand.N(50*time.Millisecond)+time.Millisecond)
						s.mu.Unlock()
						for range rand.N(4) {
							time.Sleep(rand.N(20 * time.Millisecond))
							l.place.Changed()
						}
						s.mu.Lock()
						if rand.N(5) > 0 {
							go l.place.Forget()
							l.forget()
						} else {
							l.gone = time.Now()
						}
						s.mu.Unlock()
					}
				})
			}
			if rand.N(2) == 0 {
				s.sleep(rand.N(2 * time.Second))
				s.scheduler.Stop()
			}
			s.mu.Unlock()
			all.Wait()
			s.mu.Lock()
			s.sleep(time.Second) // then all leases have ended
			looks, requests := s.looks, len(s.requests)
			s.sleep(time.Hour)
			if s.looks != looks || len(s.requests) != requests {
				t.Errorf("%d looks and %d requests about nothing", s.looks-looks, len(s.requests)-requests)
			}
		})
	}
}
