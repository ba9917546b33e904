package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// JdbcLock is the lock of one key. It comes from JdbcLockRegistry.Obtain.
//
// It is a sync.Locker with a TryLock like sync.Mutex's, for code that has
// always used a mutex. Code that wants errors, contexts and to hear of a lost
// lease uses LockContext, TryLockContext and TryLockFor, which return a Hold.
// Both views contend for the same lock. It is safe for concurrent use and must
// not be copied.
type JdbcLock struct {
	registry  *JdbcLockRegistry
	key, path string
	bad       error  // why the path cannot be a LOCK_KEY
	asked     any    // holdKey, what a context is asked for
	entry     *entry // the key's state while it is remembered, nil if another lock's is; guarded by registry.mu

	mu  sync.Mutex // guards err
	err error      // of the last Unlock
}

var _ sync.Locker = (*JdbcLock)(nil)

// Key is a key the lock was obtained with: of several that mean the same row,
// the one that came first.
func (l *JdbcLock) Key() string { return l.key }

// LockContext acquires the lock, waiting for other holders until ctx ends or
// WithWait's time is up. ctx limits the waiting only: the lease lives on after
// ctx has ended, until Unlock or the end of its TTL.
//
// If ctx comes from a Hold of this very lock (see Hold.Context), the call
// joins that hold: it returns at once with a Hold that has to be unlocked too,
// and only the last Unlock gives the lease back. A TTL that it names is what
// at least is left of the lease then. Re-entrance means that goroutines which
// share such a context do not exclude each other.
//
// Errors: ErrNotAcquired, also when ctx ends (and ErrUnavailable as well if the
// database was not answering then); ErrUnavailable when it did not answer for
// WithOutageLimit's time; ErrLockLost when ctx comes from a hold that was lost;
// ErrCapacity, ErrClosed, ErrInvalid; errors of the database that cannot pass,
// at once.
func (l *JdbcLock) LockContext(ctx context.Context, opts ...LockOption) (*Hold, error) {
	c, err := l.registry.newCall(opts)
	if err == nil {
		err = l.bad
	}
	if err != nil {
		return nil, err
	}
	if outer := l.holdIn(ctx); outer != nil {
		if hold, err := outer.join(ctx, c); hold != nil || err != nil {
			return hold, err
		}
	}
	return l.registry.lock(ctx, l, c)
}

// TryLockContext makes one attempt and returns at once: ErrNotAcquired if the
// lock is held, ErrUnavailable if the database did not answer. What the database
// refused to execute, as the victim of a deadlock or because its file is busy, is
// repeated a few times within some milliseconds.
func (l *JdbcLock) TryLockContext(ctx context.Context, opts ...LockOption) (*Hold, error) {
	return l.TryLockFor(ctx, 0, opts...)
}

// TryLockFor is LockContext with WithWait(wait).
func (l *JdbcLock) TryLockFor(ctx context.Context, wait time.Duration, opts ...LockOption) (*Hold, error) {
	return l.LockContext(ctx, append(opts[:len(opts):len(opts)], WithWait(wait))...)
}

// Lock acquires the lock, waiting as long as it takes. It cannot return an
// error: while the database does not answer it logs and tries again, and when
// that takes longer than WithOutageLimit, or on another error (a missing table,
// ErrCapacity), it panics with the error that LockContext would have returned.
// So it does when the registry is closed while it waits: stop the goroutines
// that lock before you Close. Code that must not panic uses LockContext.
//
// Like sync.Mutex it is not re-entrant, and any goroutine may unlock it.
func (l *JdbcLock) Lock() {
	hold, err := l.LockContext(context.Background())
	if err != nil {
		panic(err)
	}
	l.keep(hold)
}

// TryLock makes one attempt and reports whether it acquired the lock. If the
// database does not answer it logs that and reports false; any other error
// makes it panic as Lock does.
func (l *JdbcLock) TryLock() bool {
	hold, err := l.TryLockContext(context.Background())
	switch {
	case err == nil:
		l.keep(hold)
		return true
	case errors.Is(err, ErrUnavailable):
		l.registry.config.logger.Error("lock not tried: the database does not answer", "key", l.key, "error", err)
		return false
	case errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrClosed):
		return false
	}
	panic(err)
}

// Unlock gives back what Lock or TryLock acquired. It panics if they did not,
// as sync.Mutex does; a Hold is unlocked by its own method. If the lease was
// lost meanwhile, WithOnLost's handler is called; if the database does not
// answer, that is logged, and the lease ends with its TTL. Err has the error
// afterwards.
func (l *JdbcLock) Unlock() {
	r := l.registry
	r.mu.Lock()
	var hold *Hold
	if e := r.cache.of(l); e != nil {
		hold, e.hold = e.hold, nil
	}
	r.mu.Unlock()
	if hold == nil && r.isClosing() { // Close took it, and it was forgotten since
		l.keepErr(closedError(l.key))
		return
	}
	if hold == nil {
		panic(fmt.Errorf("%w: Unlock of %s without Lock", ErrNotHeld, quote(l.key)))
	}
	err := hold.Unlock(context.Background())
	if err != nil && !errors.Is(err, ErrLockLost) {
		r.config.logger.Error("lock not given back", "key", l.key, "error", err)
	}
	l.keepErr(err)
}

func (l *JdbcLock) keepErr(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// Err returns the error of the last Unlock of this lock, nil if it went well:
// ErrLockLost if the lease had been lost.
func (l *JdbcLock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// keep remembers the hold of the sync.Locker view. The entry cannot be
// forgotten meanwhile, as the hold uses it.
func (l *JdbcLock) keep(hold *Hold) {
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	hold.grant.entry.hold = hold
}

func (l *JdbcLock) String() string { return fmt.Sprintf("lock %s", quote(l.key)) }
