package renew_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// day is a store in which a day passes, with failures of all kinds.
type day struct {
	*store
	start, down time.Time
	stay        map[*lease]*[24]int // requests in each hour; of leases that are held all day
	all         []*lease
	granted     int
	failed      int
}

// TestDay: for a day of failing requests, outages, and leases that come, go and
// are lost, each lease is asked about as often in the last hour as in the
// first, ends only if it was asked about and no answer came, and then is
// reported on time; and nothing piles up.
func TestDay(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		d := &day{store: s, start: time.Now(), stay: make(map[*lease]*[24]int)}
		s.answer = d.fails
		ttls := []time.Duration{10 * time.Second, 30 * time.Second, 30 * time.Second, 2 * time.Minute}
		for i := range 40 {
			l := s.grant(fmt.Sprint("all-day-", i), ttls[i%len(ttls)])
			d.stay[l] = new([24]int)
		}
		for i := range 40 {
			d.all = append(d.all, d.another(ttls[i%len(ttls)]))
		}
		var heap uint64
		goroutines, hours := runtime.NumGoroutine(), 24
		if testing.Short() {
			hours = 3
		}
		for hour := range hours {
			for time.Since(d.start) < time.Duration(hour+1)*time.Hour {
				s.sleep(rand.N(6 * time.Second))
				d.comesAndGoes()
			}
			if n := runtime.NumGoroutine(); n > goroutines+20 {
				t.Errorf("hour %d: %d goroutines, %d at first", hour, n, goroutines)
			}
			d.tidy()
			var mem runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&mem)
			if hour == 1 {
				heap = mem.HeapAlloc
			} else if hour > 1 && mem.HeapAlloc > heap+256<<10 {
				t.Errorf("hour %d: %d bytes more than in the second", hour, mem.HeapAlloc-heap)
			}
		}
		d.checkHours(t, hours)
		t.Logf("%d leases came and went, %d requests failed", d.granted, d.failed)
		for l := range d.stay {
			l.forget()
		}
		for _, l := range d.all {
			l.forget()
		}
		s.sleep(time.Minute)
		looks := s.looks
		s.sleep(time.Hour)
		if s.looks != looks {
			t.Errorf("%d looks at what was forgotten", s.looks-looks)
		}
	})
}

// fails answers most requests.
func (d *day) fails(ctx context.Context, leases []*lease) (n int, err error) {
	d.mu.Lock()
	for _, l := range leases {
		if hours := d.stay[l]; hours != nil {
			hours[min(int(time.Since(d.start)/time.Hour), 23)]++
		}
	}
	down := time.Now().Before(d.down)
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err != nil {
			d.failed++
			return
		}
		for _, l := range leases[:n] {
			if l.saw.IsZero() {
				l.asked = nil // counts since the last answer in time
			}
		}
	}()
	d.mu.Unlock()
	fate := rand.N(100)
	switch {
	case down && fate < 50 || fate == 0:
		return 0, errDown
	case down || fate == 1: // a black hole
		<-ctx.Done()
		time.Sleep(rand.N(time.Second / 2))
		return 0, ctx.Err()
	case fate == 2: // late
		time.Sleep(rand.N(2 * time.Second))
	case fate == 3 && len(leases) > 1:
		return rand.N(len(leases)), nil
	default:
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	return len(leases), nil
}

func (d *day) another(ttl time.Duration) *lease {
	d.granted++
	return d.grant(fmt.Sprint("lease-", d.granted), ttl)
}

// comesAndGoes gives a lease back, or loses one, and takes another for it; and
// now and then the database is away.
func (d *day) comesAndGoes() {
	if rand.N(500) == 0 {
		d.down = time.Now().Add(rand.N(20 * time.Second))
	}
	i := rand.N(len(d.all))
	l := d.all[i]
	lost := rand.N(4) == 0
	if lost {
		l.gone = time.Now()
	}
	if lost {
		d.sleep(rand.N(l.ttl)) // it hears of it, or is given back before
	}
	d.check(l)
	l.forget()
	d.all[i] = d.another(l.ttl)
	for l, all := range d.stay {
		if !l.saw.IsZero() {
			d.check(l)
			l.forget()
			delete(d.stay, l)
			d.stay[d.grant(l.key, l.ttl)] = all
		}
	}
}

// check looks at how a lease has ended, if it has.
func (d *day) check(l *lease) {
	switch {
	case l.saw.IsZero() && time.Now().After(l.end) && l.gone.IsZero():
		d.t.Errorf("%s: nobody has seen its end", l.key)
	case !l.saw.IsZero() && l.saw != l.end:
		d.t.Errorf("%s: the end was seen %v late", l.key, l.saw.Sub(l.end))
	case !l.saw.IsZero() && len(l.asked) == 0:
		d.t.Errorf("%s ended, and nobody has asked about it", l.key)
	}
}

// tidy drops what the test itself collects.
func (d *day) tidy() {
	d.requests = nil
}

// checkHours: the last hour is like the first.
func (d *day) checkHours(t *testing.T, hours int) {
	for l, all := range d.stay {
		for hour, n := range all[:hours] {
			period := float64(time.Hour) / float64(n) / float64(l.ttl)
			if period < 0.2 || period > 0.39 { // less, as what failed is asked again
				t.Errorf("%s, TTL %v: in hour %d renewed every %.2f of it", l.key, l.ttl, hour, period)
			}
		}
	}
}
