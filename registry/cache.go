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
	idle     entry             // the ring of those with no refs: next is the longest unused one
}

// entry is one key's state in this process.
type entry struct {
	lock *JdbcLock // what Obtain returns for it

	refs     int       // goroutines that hold, wait or try; an entry with refs stays
	lastUsed time.Time // by a lock call
	// Its place among the idle ones, nil while it is not there. A list's elements
	// would be one more piece of memory for each lock call.
	next, prev *entry

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

func (c *cache) init(capacity int) {
	c.capacity, c.entries, c.byKey = capacity, make(map[string]*entry), make(map[string]*entry)
	c.idle.next, c.idle.prev = &c.idle, &c.idle
}

// longestUnused is the idle entry that has to go first, nil if there is none.
func (c *cache) longestUnused() *entry {
	if c.idle.next == &c.idle {
		return nil
	}
	return c.idle.next
}

// rest puts e at the end of the idle ones.
func (c *cache) rest(e *entry) {
	e.prev, e.next = c.idle.prev, &c.idle
	e.prev.next, e.next.prev = e, e
}

// rouse takes e from the idle ones.
func (e *entry) rouse() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
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

// touch makes an idle entry the last one to be forgotten.
func (c *cache) touch(e *entry) {
	if e.next != nil {
		e.rouse()
		c.rest(e)
	}
}

// use keeps e in the cache until it is retired.
func (c *cache) use(e *entry) {
	e.refs++
	if e.next != nil {
		e.rouse()
	}
}

// retire puts an entry without refs among those that may go.
func (c *cache) retire(e *entry, now time.Time) {
	e.lastUsed = now
	c.rest(e)
	c.shrink(c.capacity)
}

// shrink forgets idle entries, the longest unused first, down to size.
func (c *cache) shrink(size int) {
	for len(c.entries) > size && c.longestUnused() != nil {
		c.forget(c.longestUnused())
	}
}

func (c *cache) forget(e *entry) {
	e.rouse()
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
// it gets, or unlock the hold, if the turn comes with one. now is when it was
// called, and begun when the turn came.
func (r *JdbcLockRegistry) enter(ctx context.Context, l *JdbcLock, c call, start, now time.Time) (e *entry, hold *Hold, begun time.Time, err error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, nil, now, closedError(l.key)
	}
	e = r.cache.of(l)
	if e == nil {
		if e = r.cache.add(l); e == nil {
			n := r.cache.capacity
			r.mu.Unlock()
			return nil, nil, now, fmt.Errorf("%w: lock %s: %d different locks are held or waited for; raise WithCacheCapacity", ErrCapacity, quote(l.key), n)
		}
	}
	r.cache.use(e)
	if !e.taken {
		e.taken = true
		r.mu.Unlock()
		return e, nil, now, nil
	}
	left := c.wait - now.Sub(start)
	if c.wait >= 0 && left <= 0 {
		err = r.refuse(e, l.key, now.Sub(start), nil)
		r.mu.Unlock()
		return nil, nil, now, err
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
		return e, w.hold, time.Now(), nil
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
	err = r.refuse(e, l.key, time.Since(start), cause)
	if cause == nil && r.closed {
		return nil, nil, now, closedError(l.key)
	}
	return nil, nil, now, err
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
