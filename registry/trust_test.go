package registry

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/intlock/intlock/renew"
	"github.com/intlock/intlock/repository"
)

// shiftWall moves a reading of the wall clock and leaves the monotonic one as
// it is: a time.Time keeps the seconds of the former above bit 30 of its first
// word while it has the latter.
func shiftWall(t *time.Time, seconds int64) {
	word := (*uint64)(unsafe.Pointer(t))
	*word = uint64(int64(*word) + seconds<<30)
}

func TestElapsedTakesTheLargerClock(t *testing.T) {
	for _, c := range []struct {
		what  string
		shift int64 // of the reading in the past
		least time.Duration
		most  time.Duration
	}{
		{"both clocks agree", 0, 0, time.Second},
		{"the machine was suspended for an hour, or its clock set forward", -3600, time.Hour, time.Hour + time.Second},
		{"its clock was set back by an hour", 3600, 0, time.Second},
	} {
		sent := time.Now()
		shiftWall(&sent, c.shift)
		if got := elapsed(sent); got < c.least || got > c.most {
			t.Errorf("%s: elapsed = %v, want %v to %v", c.what, got, c.least, c.most)
		}
	}
}

func TestTrust(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Millisecond: 950 * time.Microsecond,
		10 * time.Second: 9500 * time.Millisecond,
		20 * time.Second: 19 * time.Second,
		time.Hour:        time.Hour - time.Second,
	} {
		if got := (trust{time.Now().Add(time.Minute), ttl}).remaining() - time.Minute; got > want || got < want-time.Second {
			t.Errorf("TTL %v: %v are trusted, want %v", ttl, got, want)
		}
	}
}

// suspend has the scheduler see what a machine sees that has slept for an hour.
func suspend(s *renew.Scheduler[*grant]) {
	fields := reflect.ValueOf(s).Elem()
	mu := (*sync.Mutex)(fields.FieldByName("mu").Addr().UnsafePointer())
	mu.Lock()
	defer mu.Unlock()
	shiftWall((*time.Time)(fields.FieldByName("base").Addr().UnsafePointer()), -3600)
}

// TestSuspended: after an hour of sleep the first question is answered no, and
// the contexts end without anybody asking.
func TestSuspended(t *testing.T) {
	repo, err := repository.NewMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(repo, WithOnLost(func(*LostError) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	for _, ask := range []bool{true, false} {
		h, err := r.Obtain("foo").LockContext(t.Context(), WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ctx := h.Context(t.Context())
		h.grant.mu.Lock()
		shiftWall(&h.grant.trust.sent, -3600)
		h.grant.mu.Unlock()
		suspend(r.keeper)
		if ask && h.Held() {
			t.Error("the hold says that it is held")
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
			t.Error("the context stands")
		}
		h.Unlock(t.Context())
	}
}
