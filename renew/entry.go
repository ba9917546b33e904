package renew

import "time"

// Entry is a lease's place in a scheduler.
type Entry[L Lease] struct {
	scheduler *Scheduler[L]
	lease     L

	at        time.Time // of the next look
	index     int       // in the heap, -1 while it is not there
	gone      bool
	asking    bool // a request about it is under way or queued
	pause     time.Duration
	notBefore time.Time // of the next request
}

// due is a lease that waits for a request.
type due[L Lease] struct {
	entry *Entry[L]
	ttl   time.Duration
	end   time.Time
}

// before orders the queue by the ends. What has failed comes last: it may fail
// until it ends, and must not take others with it.
func (a due[L]) before(b due[L]) int {
	if failed := a.entry.pause > 0; failed != (b.entry.pause > 0) {
		if failed {
			return 1
		}
		return -1
	}
	return a.end.Compare(b.end)
}

// take notes a verdict. Pauses double from a hundredth of the TTL to a tenth,
// a second at most, and are cut by up to a half: by the same luck for all of a
// request, as else each would come back with a request of its own. The caller
// holds s.mu.
func (e *Entry[L]) take(v Verdict, ttl time.Duration, now time.Time, luck float64) {
	switch v {
	case Kept: // a look that does not see much of it must not lead to a storm
		e.pause, e.notBefore = 0, now.Add(step(ttl))
	case Over:
		e.scheduler.remove(e)
	default:
		e.pause = min(max(2*e.pause, ttl/100, time.Millisecond), max(ttl/10, time.Millisecond), time.Second)
		e.notBefore = now.Add(time.Duration(float64(e.pause) * (1 + luck) / 2))
	}
}

// entries is a heap by the time of the next look.
type entries[L Lease] []*Entry[L]

func (h entries[L]) Len() int           { return len(h) }
func (h entries[L]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries[L]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *entries[L]) Push(x any) {
	e := x.(*Entry[L])
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *entries[L]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
