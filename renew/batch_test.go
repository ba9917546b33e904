package renew_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestDueAtAThird: a lease is renewed about a third of its TTL after it was
// granted or renewed, and not all at the very same time.
func TestDueAtAThird(t *testing.T) {
	for _, ttl := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			pauses := make(map[time.Duration]int)
			for i := range 20 { // each alone, as others make it come earlier
				bubble(t, func(t *testing.T, s *store) {
					start := time.Now()
					l := s.grant(fmt.Sprint("key-", i), ttl)
					s.sleep(ttl * 5 / 6)
					l.forget()
					if len(l.asked) < 2 {
						t.Fatalf("asked about %d times in 5/6 of the TTL", len(l.asked))
					}
					for _, at := range l.asked {
						pause := at.Sub(start)
						if pause < ttl*27/100 || pause > ttl*42/100 {
							t.Errorf("renewed after %.3f of the TTL", float64(pause)/float64(ttl))
						}
						pauses[pause]++
						start = at
					}
				})
			}
			if len(pauses) < 5 {
				t.Errorf("no jitter: %v", pauses)
			}
		})
	}
}

// TestDueAtOnce: a lease that took long to be granted, so that less is left of it
// than when it is due, is renewed at once.
func TestDueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		for _, share := range []time.Duration{2, 10, 100} {
			l := (&lease{store: s, key: fmt.Sprint(share), ttl: time.Minute, end: time.Now().Add(time.Minute / share)}).keep()
			s.sleep(2 * time.Millisecond)
			if len(l.asked) != 1 {
				t.Errorf("1/%d of the TTL left: asked %d times", share, len(l.asked))
			}
		}
	})
}

// TestFewRequests: 10,000 leases of 30 s need a handful of requests per second,
// however long each takes, whenever they were granted.
func TestFewRequests(t *testing.T) {
	for _, c := range []struct {
		granted, takes time.Duration
		most           float64
	}{
		{0, 0, 8},
		{5 * time.Second, 0, 8},
		{5 * time.Second, 3 * time.Millisecond, 8},
		{12 * time.Second, 3 * time.Millisecond, 8},
		{12 * time.Second, 100 * time.Millisecond, 8},
		{12 * time.Second, 800 * time.Millisecond, 8},
	} {
		t.Run(fmt.Sprintf("granted over %v, %v per request", c.granted, c.takes), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *store) {
				if c.takes > 0 {
					s.takes(c.takes)
				}
				const n, ttl, window = 10_000, 30 * time.Second, 2 * time.Minute
				leases := make([]*lease, n)
				for i := range leases {
					leases[i] = s.grant(fmt.Sprint("key-", i), ttl)
					s.sleep(c.granted / n)
				}
				s.sleep(ttl)
				start := time.Now()
				s.sleep(window)
				alive(t, leases)
				asked, peak := 0, 0
				perSecond := make(map[int]int)
				for _, r := range s.requests {
					if second := int(r.at.Sub(start) / time.Second); second >= 0 {
						asked += r.n
						perSecond[second]++
						if second > 60 { // a burst of grants has spread by then
							peak = max(peak, perSecond[second])
						}
					}
				}
				rate := float64(s.since(start)) / window.Seconds()
				period := window.Seconds() * n / float64(asked)
				t.Logf("%.1f requests per second, %d at most, each lease every %.1f s", rate, peak, period)
				if peak > 24 {
					t.Errorf("%d requests in one second", peak)
				}
				if rate > c.most {
					t.Errorf("%.1f requests per second, want at most %v", rate, c.most)
				}
				if period < 9 {
					t.Errorf("each lease is renewed every %.1f s: too often", period)
				}
			})
		})
	}
}

// TestMixedTTLs: each lease is renewed for its own TTL, and short ones do not
// wait behind many long ones.
func TestMixedTTLs(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.takes(100 * time.Millisecond)
		leases := s.grantMany(4000, time.Minute)
		for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, time.Hour} {
			leases = append(leases, s.grantMany(50, ttl)...)
		}
		for range 60 {
			s.sleep(3 * time.Second)
			alive(t, leases)
		}
	})
}

// TestPartialAnswers: what a request could not take is asked about again, at
// once and not together with what it took.
func TestPartialAnswers(t *testing.T) {
	for _, most := range []int{1, 16, 100} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *store) {
				s.answer = func(_ context.Context, leases []*lease) (int, error) {
					time.Sleep(time.Millisecond)
					return min(most, len(leases)), nil
				}
				const n = 500
				leases := s.grantMany(n, 30*time.Second)
				s.sleep(2 * time.Minute)
				alive(t, leases)
				rounds := float64(len(s.requests)) * float64(most) / n
				if rounds > 2*2*60/9 { // one in 9 s, of requests that are half full
					t.Errorf("%d requests for %d leases, %d of them in each: %.0f rounds in 2 minutes", len(s.requests), n, most, rounds)
				}
			})
		})
	}
}
