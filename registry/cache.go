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

	taken   bool       // somebody has the local turn
	waiting *list.List // of *waiter, first come first served

	grant *grant // the lease, while this registry holds the key
	hold  *Hold  // the hold of the sync.Locker view, between its Lock and Unlock
}

// waiter is a goroutine in a local queue. turn is closed when it is its turn.
type waiter struct{ turn chan struct{} }

func newCache(capacity int) cache {
	return cache{capacity: capacity, entries: make(map[string]*entry), idle: list.New()}
}

// add makes an entry for l, pushing out the longest unused one if the cache is
// full. It returns nil if every entry is in use.
func (c *cache) add(l *JdbcLock) *entry {
	c.shrink(c.capacity - 1)
	if len(c.entries) >= c.capacity {
		return nil
	}
	e := &entry{lock: l, waiting: list.New()}
	c.entries[l.path] = e
	c.retire(e)
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
func (c *cache) retire(e *entry) {
	e.lastUsed = time.Now()
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
}

// enter queues for the local turn of l's key and waits for it: until ctx ends,
// wait has passed (negative: no limit), or the registry closes. The caller
// must leave the entry it gets.
func (r *JdbcLockRegistry) enter(ctx context.Context, l *JdbcLock, wait time.Duration) (*entry, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, closedError(l.key)
	}
	e := r.cache.entries[l.path]
	if e == nil {
		if e = r.cache.add(l); e == nil {
			n := r.cache.capacity
			r.mu.Unlock()
			return nil, fmt.Errorf("%w: lock %s: %d different locks are held or waited for; raise WithCacheCapacity", ErrCapacity, quote(l.key), n)
		}
	}
	r.cache.use(e)
	if !e.taken {
		e.taken = true
		r.mu.Unlock()
		return e, nil
	}
	if wait == 0 {
		err := r.refuse(e, l.key, 0, nil)
		r.mu.Unlock()
		return nil, err
	}
	w := &waiter{turn: make(chan struct{})}
	place := e.waiting.PushBack(w)
	r.mu.Unlock()

	var timeUp <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeUp = timer.C
	}
	start := time.Now()
	var cause error
	select {
	case <-w.turn:
		return e, nil
	case <-ctx.Done():
		cause = contextCause(ctx)
	case <-timeUp:
	case <-r.closing:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.turn: // it came at the same moment: pass it on
		r.passTurn(e)
	default:
		e.waiting.Remove(place)
	}
	err := r.refuse(e, l.key, time.Since(start), cause)
	if cause == nil && r.closed {
		return nil, closedError(l.key)
	}
	return nil, err
}

// refuse ends a visit of e that did not get its turn.
func (r *JdbcLockRegistry) refuse(e *entry, key string, waited time.Duration, cause error) error {
	err := &NotAcquiredError{Key: key, Waited: waited, Cause: cause, held: "others of this process wait for it"}
	if e.grant != nil {
		err.heldBy(repository.Outcome{ClientID: r.clientID, Holder: "this process", Remaining: max(0, e.grant.remaining())})
	}
	r.unuse(e)
	return err
}

// leave gives the local turn to the next in the queue.
func (r *JdbcLockRegistry) leave(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passTurn(e)
	r.unuse(e)
}

func (r *JdbcLockRegistry) passTurn(e *entry) {
	if first := e.waiting.Front(); first != nil {
		e.waiting.Remove(first)
		close(first.Value.(*waiter).turn)
		return
	}
	e.taken = false
}

func (r *JdbcLockRegistry) unuse(e *entry) {
	if e.refs--; e.refs == 0 {
		r.cache.retire(e)
	}
}
