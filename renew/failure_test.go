package renew_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/intlock/intlock/renew"
)

// TestBackOff: a request that fails is repeated, after pauses that grow, until
// the lease ends; and what failed together is asked about together.
func TestBackOff(t *testing.T) {
	for name, answer := range map[string]func(context.Context, []*lease) (int, error){
		"error":      func(context.Context, []*lease) (int, error) { return 0, errDown },
		"no verdict": func(context.Context, []*lease) (int, error) { return 0, nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *store) {
				const ttl = 30 * time.Second
				s.answer = answer
				start := time.Now()
				leases := s.grantMany(200, ttl)
				s.sleep(ttl)
				for _, l := range leases {
					if l.saw != l.end {
						t.Fatalf("%s ended at %v, seen at %v", l.key, l.end.Sub(start), l.saw.Sub(start))
					}
				}
				// 19.75 s at most, with pauses of 0.15 to 1 s; two batches, as jitter has it.
				if n := len(s.requests); n < 20 || n > 100 {
					t.Errorf("%d requests", n)
				}
				asked := leases[0].asked
				if first, last := asked[1].Sub(asked[0]), asked[len(asked)-1].Sub(asked[len(asked)-2]); first > 300*time.Millisecond || last < 500*time.Millisecond {
					t.Errorf("the first pause is %v, the last %v", first, last)
				}
				if end := leases[0].end.Sub(asked[len(asked)-1]); end > time.Second {
					t.Errorf("the last try was %v before the end", end)
				}
			})
		})
	}
}

// TestOutage: 10,000 leases survive an outage that is shorter than two thirds
// of their TTL, with no storm of requests in it or after it.
func TestOutage(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return errDown },
		"hanging": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *store) {
				leases := s.grantMany(10_000, 30*time.Second)
				s.sleep(50 * time.Second)
				start, looks := time.Now(), s.looks
				s.answer = func(ctx context.Context, leases []*lease) (int, error) {
					time.Sleep(time.Millisecond)
					if time.Since(start) < 12*time.Second {
						return 0, fail(ctx)
					}
					return len(leases), nil
				}
				s.sleep(12 * time.Second)
				t.Logf("%d requests and %d looks in 12 s without an answer", s.since(start), s.looks-looks)
				if n := s.since(start); n > 12*100 {
					t.Errorf("%d requests in 12 s", n)
				}
				if n := s.looks - looks; n > 12*10_000*4 {
					t.Errorf("%d looks in 12 s", n)
				}
				s.sleep(48 * time.Second)
				alive(t, leases)
			})
		})
	}
}

// TestHung: requests that never return hold up neither looks nor, as long as
// there are slots, other requests.
func TestHung(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		release := make(chan struct{})
		defer close(release)
		hangs := map[time.Duration]bool{10 * time.Second: true, 11 * time.Second: true, 12 * time.Second: true}
		s.answer = func(_ context.Context, leases []*lease) (int, error) {
			s.mu.Lock()
			hung := hangs[leases[0].ttl]
			s.mu.Unlock()
			if hung {
				<-release
			}
			return len(leases), nil
		}
		var dead []*lease
		for ttl := range hangs {
			dead = append(dead, s.grantMany(1, ttl)...)
		}
		unrenewed := s.grantMany(1, 5*time.Second)[0]
		unrenewed.ttl = 0
		others := append(s.grantMany(3000, 30*time.Second), s.grantMany(100, time.Second)...)
		s.sleep(2 * time.Minute)
		alive(t, others)

		hangs[30*time.Second], hangs[time.Second] = true, true
		s.sleep(time.Minute)
		for _, l := range append(append(dead, unrenewed), others...) {
			if l.saw != l.end {
				t.Fatalf("%s: the end was seen %v late", l.key, l.saw.Sub(l.end))
			}
		}
		if len(s.requests) == 0 || s.running != 4 {
			t.Errorf("%d requests hang, want 4", s.running)
		}
	})
}

// TestUrgentFirst: when there are more requests than slots, leases that end
// soon go first, whoever came first.
func TestUrgentFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.answer = func(_ context.Context, leases []*lease) (int, error) {
			time.Sleep(450 * time.Millisecond)
			return len(leases), nil
		}
		long := s.grantMany(20_000, time.Minute) // 80 requests, for nine seconds
		s.sleep(15 * time.Second)
		short := s.grantMany(10, 4*time.Second)
		for range 20 {
			s.sleep(2 * time.Second)
			alive(t, short)
		}
		alive(t, long)
	})
}

// TestFailingLast: leases that cannot be renewed, however many they are and
// however soon they end, do not take others with them.
func TestFailingLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.answer = func(ctx context.Context, leases []*lease) (int, error) {
			time.Sleep(10 * time.Millisecond)
			if ttl := leases[0].ttl; ttl > 20*time.Second && ttl < 22*time.Second {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return len(leases), nil
		}
		others := append(s.grantMany(300, 23*time.Second), s.grantMany(300, 40*time.Second)...)
		for i := range 10 { // forty seconds of requests at once
			s.grantMany(10, 21*time.Second+time.Duration(i)*time.Millisecond)
		}
		for range 40 {
			s.sleep(time.Second)
			alive(t, others)
		}
	})
}

// TestAgain: a lease that could not be prolonged for a reason that may pass is
// asked about again, and what else was in its request is not.
func TestAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		leases := s.grantMany(100, 30*time.Second)
		for i, l := range leases {
			l.busy = i%10 == 7
		}
		s.sleep(28 * time.Second)
		for _, l := range leases {
			if n := len(l.asked); l.busy && (n < 10 || n > 100) || !l.busy && n != 2 {
				t.Errorf("%s (busy %v) was asked about %d times in 28 s", l.key, l.busy, n)
			}
			l.busy = false
		}
		if n := len(s.requests); n > 100 {
			t.Errorf("%d requests", n)
		}
		s.sleep(time.Minute)
		alive(t, leases)
	})
}

// TestUselessAnswers: a verdict that nothing shows of does not lead to a storm.
func TestUselessAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.scheduler = renew.New(func(ctx context.Context, leases []*lease, ttl time.Duration) ([]renew.Verdict, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests = append(s.requests, request{})
			if len(s.requests) > 1000 {
				return []renew.Verdict{renew.Over}, nil
			}
			return []renew.Verdict{renew.Kept}, nil
		})
		for _, ttl := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
			s.requests = nil
			s.grant(fmt.Sprint(ttl), ttl)
			s.sleep(ttl)
			if n := len(s.requests); n < 5 || n > 40 {
				t.Errorf("TTL %v: %d requests", ttl, n)
			}
		}
	})
}
