package registry

import "context"

// WakeUp tells a registry that a key may have become free, so that whoever waits
// for it asks the database at once and not at the next poll. It is a help and
// no promise: polling goes on underneath, and what a WakeUp misses is found a
// little later. The packages below wakeup have one for PostgreSQL and one for
// SQLite.
//
// A WakeUp serves one registry. Its methods must be safe for concurrent use and
// must not block.
type WakeUp interface {
	// Start is called once, by New. From then on until ctx ends the WakeUp calls
	// wake with a LOCK_KEY that may have become free, in whatever region, or
	// with "" when it cannot tell which, as after a broken connection. wake
	// never blocks and may be called for keys that nobody waits for. Whatever Start opens it closes when ctx ends; stopped is called
	// when that is done.
	Start(ctx context.Context, wake func(path string), stopped func())

	// Await says that somebody waits for a key from now on, until the function
	// that it returns is called. Once the WakeUp has made known that it has to
	// be told of the key, it calls wake for it: what became free before is
	// found by asking again.
	Await(path string) (done func())

	// Alive reports whether the WakeUp hears of releases at present.
	Alive() bool
}

// await has the WakeUp tell of e until done is called.
func (r *JdbcLockRegistry) await(e *entry, up WakeUp) (woken <-chan struct{}, done func()) {
	r.mu.Lock()
	if e.woken == nil {
		e.woken = make(chan struct{}, 1)
	}
	r.awaited[e.lock.path] = e
	woken = e.woken
	r.mu.Unlock()
	stop := up.Await(e.lock.path)
	return woken, func() {
		stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.awaited, e.lock.path)
	}
}

// wake has the waiter for path look whether the row is free, or all of them.
func (r *JdbcLockRegistry) wake(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if path != "" {
		if e := r.awaited[path]; e != nil {
			e.wake()
		}
		return
	}
	for _, e := range r.awaited {
		e.wake()
	}
}

func (e *entry) wake() {
	select {
	case e.woken <- struct{}{}:
	default: // it is awake already
	}
}
