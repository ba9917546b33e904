package registry

import (
	"container/list"
	"context"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

// cache holds what a process knows about its locks, at most one entry per row
// of the table: two entries for one row would be two local queues, and two
// goroutines could take turns in them without seeing each other.
//
// The registry's mutex guards everything in this file. It is never held while
// waiting or while the database is asked.
type cache struct {
	capacity int
	entries  map[string]*entry // by path
	byKey    map[string]*entry // by the key of its lock, which saves computing the path
	idle     *list.List        // of *entry with no refs, the longest unused first
}

// entry is one key's state in this process.
type entry struct {
	lock *JdbcLock // what Obtain returns for it

	refs     int // goroutines that hold, wait or try; an entry with refs stays
	place    *list.Element
	lastUsed time.Time

	streak streak // these two belong to whoever has the local turn
	outage outage

	taken   bool          // somebody has the local turn
	waiting list.List     // of *waiter, first come first served
	woken   chan struct{} // gets a token when the row may be free; nil unless somebody awaits that

	grant *grant // the lease, while this registry holds the key
	hold  *Hold  // the hold of the sync.Locker view, between its Lock and Unlock
}

// waiter is a goroutine in a local queue. turn is closed when it is its turn;
// hold is set before if it gets the lease with it.
type waiter struct {
	key   string
	terms terms
	turn  chan struct{}
	hold  *Hold
}

func newCache(capacity int) cache {
	return cache{capacity: capacity, entries: make(map[string]*entry), byKey: make(map[string]*entry), idle: list.New()}
}

// add makes an entry for l, pushing out the longest unused one if the cache is
// full. It returns nil if every entry is in use.
func (c *cache) add(l *JdbcLock) *entry {
	c.shrink(c.capacity - 1)
	if len(c.entries) >= c.capacity {
		return nil
	}
	e := &entry{lock: l}
	c.entries[l.path], c.byKey[l.key] = e, e
	l.entry = e
	c.retire(e, time.Now())
	return e
}

// touch marks an idle entry as just used.
func (c *cache) touch(e *entry) {
	if e.place != nil {
		e.lastUsed = time.Now()
		c.idle.MoveToBack(e.place)
	}
}

// use keeps e in the cache until it is retired.
func (c *cache) use(e *entry) {
	e.refs++
	if e.place != nil {
		c.idle.Remove(e.place)
		e.place = nil
	}
}

// retire puts an entry without refs among those that may go.
func (c *cache) retire(e *entry, now time.Time) {
	e.lastUsed = now
	e.place = c.idle.PushBack(e)
	c.shrink(c.capacity)
}

// shrink forgets idle entries, the longest unused first, down to size.
func (c *cache) shrink(size int) {
	for len(c.entries) > size && c.idle.Len() > 0 {
		c.forget(c.idle.Front().Value.(*entry))
	}
}

func (c *cache) forget(e *entry) {
	c.idle.Remove(e.place)
	e.place = nil
	delete(c.entries, e.lock.path)
	delete(c.byKey, e.lock.key)
	e.lock.entry = nil
}

// of finds the entry of a lock.
func (c *cache) of(l *JdbcLock) *entry {
	if l.entry != nil {
		return l.entry
	}
	return c.entries[l.path] // it may be that of another lock of the same row
}

// enter queues for the local turn of l's key and waits for it: until ctx ends,
// the call's time is up, or the registry closes. The caller must leave the entry
// it gets, or unlock the hold, if the turn comes with one.
func (r *JdbcLockRegistry) enter(ctx context.Context, l *JdbcLock, c call, start, now time.Time) (*entry, *Hold, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, nil, closedError(l.key)
	}
	e := r.cache.of(l)
	if e == nil {
		if e = r.cache.add(l); e == nil {
			n := r.cache.capacity
			r.mu.Unlock()
			return nil, nil, fmt.Errorf("%w: lock %s: %d different locks are held or waited for; raise WithCacheCapacity", ErrCapacity, quote(l.key), n)
		}
	}
	r.cache.use(e)
	if !e.taken {
		e.taken = true
		r.mu.Unlock()
		return e, nil, nil
	}
	left := c.wait - now.Sub(start)
	if c.wait >= 0 && left <= 0 {
		err := r.refuse(e, l.key, now.Sub(start), nil)
		r.mu.Unlock()
		return nil, nil, err
	}
	w := &waiter{key: l.key, terms: c.terms, turn: make(chan struct{})}
	place := e.waiting.PushBack(w)
	r.mu.Unlock()

	var timeUp <-chan time.Time
	if c.wait > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		timeUp = timer.C
	}
	var cause error
	select {
	case <-w.turn:
		return e, w.hold, nil
	case <-ctx.Done():
		cause = contextCause(ctx)
	case <-timeUp:
	case <-r.closing:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.turn: // it came at the same moment: pass it on
		if w.hold != nil {
			r.cache.use(e) // for the hold, beside the one for this visit
			r.background.run(func() { w.hold.Unlock(ctx) })
		} else {
			r.passTurn(e)
		}
	default:
		e.waiting.Remove(place)
	}
	err := r.refuse(e, l.key, time.Since(start), cause)
	if cause == nil && r.closed {
		return nil, nil, closedError(l.key)
	}
	return nil, nil, err
}

// refuse ends a visit of e that did not get its turn.
func (r *JdbcLockRegistry) refuse(e *entry, key string, waited time.Duration, cause error) error {
	err := &NotAcquiredError{Key: key, Waited: waited, Cause: cause, held: "others of this process wait for it"}
	if e.grant != nil {
		err.heldBy(repository.Outcome{ClientID: r.clientID, Holder: "this process", Remaining: max(0, e.grant.remaining())})
	}
	r.unuse(e, time.Now())
	return err
}

// leave gives the local turn to the next in the queue.
func (r *JdbcLockRegistry) leave(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passTurn(e)
	r.unuse(e, time.Now())
}

func (r *JdbcLockRegistry) passTurn(e *entry) {
	if first := e.waiting.Front(); first != nil {
		e.waiting.Remove(first)
		close(first.Value.(*waiter).turn)
		return
	}
	e.taken = false
}

func (r *JdbcLockRegistry) unuse(e *entry, now time.Time) {
	if e.refs--; e.refs == 0 {
		r.cache.retire(e, now)
	}
}
