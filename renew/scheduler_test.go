package renew

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"
)

// TestPlanOfLongTTLs: the longest TTL of package repository is renewed in time.
func TestPlanOfLongTTLs(t *testing.T) {
	s := New[*fixed](nil)
	for _, ttl := range []time.Duration{time.Nanosecond, time.Millisecond, 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		e, now := &Entry[*fixed]{scheduler: s, index: -1}, time.Now()
		if s.plan(e, State{TTL: ttl, Remaining: ttl, Next: ttl}, now) && ttl >= time.Millisecond {
			t.Errorf("TTL %v: due at once", ttl)
		}
		if at := e.at.Sub(now); ttl >= time.Millisecond && (at < ttl/3 || at > ttl/2) {
			t.Errorf("TTL %v: due after %v", ttl, at)
		}
		if !s.plan(e, State{TTL: ttl, Remaining: ttl / 2, Next: ttl / 2}, now) {
			t.Errorf("TTL %v: not due with half of it left", ttl)
		}
	}
}

// fixed is a lease that looks the same always.
type fixed struct {
	state State
	looks atomic.Int64
}

func (*fixed) Key() string           { return "key" }
func (f *fixed) Look() (State, bool) { f.looks.Add(1); return f.state, true }

// TestClockJump: when the wall clock has moved against the other one, every
// lease is looked at, within a second, and once. It takes real time, as the
// time of a bubble has no monotonic clock.
func TestClockJump(t *testing.T) {
	for _, shift := range []int64{3600, 1, -1, -3600} {
		s := New[*fixed](nil)
		var leases []*fixed
		for range 100 {
			l := &fixed{state: State{Remaining: time.Hour, Next: time.Hour}}
			keep(s, l, l.state)
			leases = append(leases, l)
		}
		s.beat()
		for _, l := range leases {
			if n := l.looks.Load(); n > 0 {
				t.Fatalf("%d looks before", n)
			}
		}
		s.mu.Lock()
		shiftWall(&s.base, -shift) // moving the past is the only way to move the present
		s.mu.Unlock()
		for begin := time.Now(); leases[99].looks.Load() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > 10*time.Second {
				t.Fatalf("the clock was moved by %d s: not looked at", shift)
			}
		}
		for range 3 {
			s.beat()
		}
		for _, l := range leases {
			if n := l.looks.Load(); n > 1 {
				t.Fatalf("the clock was moved by %d s: %d looks", shift, n)
			}
		}
		s.Stop()
	}
}

// shiftWall moves a reading of the wall clock and leaves the monotonic one as
// it is: a time.Time keeps the seconds of the former above bit 30 of its first
// word while it has the latter.
func shiftWall(t *time.Time, seconds int64) {
	word := (*uint64)(unsafe.Pointer(t))
	*word = uint64(int64(*word) + seconds<<30)
}

// TestShortLocksCostNothing: locks that come and go set the timer once, and
// start nothing.
func TestShortLocksCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New[*fixed](nil)
		l := &fixed{state: State{TTL: 10 * time.Second, Remaining: 10 * time.Second, Next: 10 * time.Second}}
		e := keep(s, l, l.state)
		goroutines, timer, wake := runtime.NumGoroutine(), s.timer, s.wake
		e.Forget()
		for range 1000 {
			keep(s, l, l.state).Forget()
			time.Sleep(longestLook / 2000)
			s.mu.Lock()
			same := s.timer == timer && s.wake == wake
			s.mu.Unlock()
			if !same || runtime.NumGoroutine() > goroutines+10 {
				t.Fatal("a lock has set the timer or started a goroutine")
			}
		}
		time.Sleep(longestLook)
		synctest.Wait()
		if !s.wake.IsZero() || len(s.entries) > 0 || l.looks.Load() > 0 {
			t.Errorf("left: wake %v, %d entries, %d looks", s.wake, len(s.entries), l.looks.Load())
		}
		n := testing.AllocsPerRun(100, func() { keep(s, l, l.state).Forget() })
		if n > 1 {
			t.Errorf("%v allocations for a lock, want its entry only", n)
		}
		time.Sleep(2 * longestLook)
	})
}

// TestNothingIsKept: what was forgotten is not referred to any more, also when
// it was waiting for a request.
func TestNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := New(func(_ context.Context, leases []*named, _ time.Duration) ([]Verdict, error) {
			<-release
			return make([]Verdict, len(leases)), nil
		})
		var refs []weak.Pointer[named]
		func() {
			for i := range 3000 {
				l := &named{key: fmt.Sprint(i)}
				refs = append(refs, weak.Make(l))
				e := keep(s, l, State{TTL: time.Hour, Remaining: time.Second, Next: time.Second})
				time.AfterFunc(10*time.Second, e.Forget)
			}
		}()
		time.Sleep(11 * time.Second)
		close(release)
		time.Sleep(time.Second)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.entries) > 0 || len(s.queue) > 0 || s.asking > 0 {
			t.Errorf("left: %d entries, %d batches, %d requests", len(s.entries), len(s.queue), s.asking)
		}
		runtime.GC()
		kept := 0
		for _, ref := range refs {
			if ref.Value() != nil {
				kept++
			}
		}
		if kept > 10 { // some may lie on a stack
			t.Errorf("%d leases are still referred to", kept)
		}
	})
}

type named struct{ key string }

func (l *named) Key() string { return l.key }
func (l *named) Look() (State, bool) {
	return State{TTL: time.Hour, Remaining: time.Second, Next: time.Second}, true
}

// keep has s look after lease from now on.
func keep[L Lease](s *Scheduler[L], lease L, state State) *Entry[L] {
	e := new(Entry[L])
	s.Keep(e, lease, state, time.Now())
	return e
}
