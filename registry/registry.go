package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/intlock/intlock/renew"
	"github.com/intlock/intlock/repository"
)

// JdbcLockRegistry hands out locks that are rows of a database table: among
// the goroutines of a process through local queues, among processes through a
// repository. It is Spring Integration's class of that name. It is safe for
// concurrent use.
//
// A process needs one registry per region, with a repository of its own.
type JdbcLockRegistry struct {
	repo     repository.LockRepository
	clientID string
	config   config

	closing   chan struct{} // closed by Close: ends every wait
	done      chan struct{} // closed when Close is done
	keeper    *renew.Scheduler[*grant]
	immediate bool                 // the repository never waits, so it is asked on the caller's goroutine
	mapper    repository.KeyMapper // maps the keys, if it is not nil

	// Elsewhere requests go by these.
	acquisitions lane[repository.Request, repository.Outcome]
	deletions    lane[repository.Lease, bool]
	renewals     complaint
	background   tasks // lock calls, statements and clean-ups under way
	open         context.Context
	shut         context.CancelFunc // ends open, when Close returns: the life of clean-ups

	mu      sync.Mutex // guards the fields below and everything in cache; taken before grant.mu
	cache   cache
	awaited map[string]*entry // by path, those that config.wakeUp is to tell of
	closed  bool
}

// New returns a registry on repo. Errors match ErrInvalid.
func New(repo repository.LockRepository, opts ...Option) (*JdbcLockRegistry, error) {
	if repo == nil {
		return nil, invalid("the repository is nil")
	}
	c := config{
		terms:       terms{ttl: DefaultTTL, renewal: true},
		idle:        DefaultIdleBetweenTries,
		capacity:    DefaultCacheCapacity,
		outageLimit: DefaultOutageLimit,
		batching:    true,
		handOver:    true,
		adaptive:    true,
		logger:      slog.Default(),
	}
	c.onLost = func(err *LostError) { c.logger.Error("lock lost", "key", err.Key, "error", err) }
	for _, o := range opts {
		o.applyRegistry(&c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	r := &JdbcLockRegistry{repo: repo, clientID: repo.ClientID(), config: c, closing: make(chan struct{}), done: make(chan struct{})}
	r.config.ttlSet, r.config.renewalSet = false, false // what follows is about calls
	if r.config.pathFor == nil {
		r.config.pathFor = PathFor
		r.mapper, _ = repo.(repository.KeyMapper)
	}
	r.cache.init(c.capacity)
	_, r.immediate = repo.(repository.Immediate)
	r.acquisitions.background, r.acquisitions.alone = &r.background, repo.Acquire
	r.deletions.background, r.deletions.alone = &r.background, repo.Delete
	if many, ok := repo.(repository.BatchRepository); ok && c.batching {
		r.acquisitions.together, r.deletions.together = many.AcquireBatch, many.DeleteBatch
	}
	r.keeper = renew.New(r.keepAlive)
	r.open, r.shut = context.WithCancel(context.Background())
	if c.wakeUp != nil {
		r.awaited = make(map[string]*entry)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-r.closing; cancel() }()
		r.background.begin()
		c.wakeUp.Start(ctx, r.wake, r.background.finish)
	}
	return r, nil
}

// Obtain returns the lock for key. It does no I/O and never waits: Obtain is
// Spring's word, and acquiring is what the lock's methods do. Two keys with
// the same LOCK_KEY are the same lock.
func (r *JdbcLockRegistry) Obtain(key string) *JdbcLock {
	if l := r.remembered(key, ""); l != nil {
		return l
	}
	path, bad := r.path(key)
	if bad == nil {
		if l := r.remembered(key, path); l != nil {
			return l
		}
	}
	l := &JdbcLock{registry: r, key: key, path: path, bad: bad, asked: holdKey{r, path}}
	if l.bad != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.cache.entries[path]; e != nil { // somebody was faster
		return e.lock
	}
	r.cache.add(l) // a full cache does not matter before somebody locks
	return l
}

// remembered finds the lock of a key, or of its path if that is given.
func (r *JdbcLockRegistry) remembered(key, path string) *JdbcLock {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.cache.byKey[key]
	if path != "" {
		e = r.cache.entries[path]
	}
	if e == nil {
		return nil
	}
	r.cache.touch(e)
	return e.lock
}

// ExecuteLocked runs f while holding the lock for key, and gives the lock back
// when f returns, panics or exits. f's context ends when the lease is lost,
// when the registry is closed, or with ctx; context.Cause tells which.
// HoldFromContext gives f the hold. A nested ExecuteLocked or LockContext for
// the same key with that context joins it.
//
// The error joins what f returned, what ended f's context if that was Close,
// and what Unlock returned. Without the lock f does not run, and the error is
// LockContext's.
func (r *JdbcLockRegistry) ExecuteLocked(ctx context.Context, key string, f func(context.Context) error, opts ...LockOption) (err error) {
	hold, err := r.Obtain(key).LockContext(ctx, opts...)
	if err != nil {
		return err
	}
	held := hold.Context(ctx)
	defer func() {
		unlock := hold.Unlock(ctx)
		if lost, ok := err.(*LostError); ok && errors.Is(unlock, ErrLockLost) && lost.Key == key {
			err = nil // f returned its context's cause: Unlock knows more of the same
		}
		err = errors.Join(err, unlock)
	}()
	err = f(held)
	if cause := context.Cause(held); err != nil && errors.Is(cause, ErrClosed) && !errors.Is(err, ErrClosed) {
		err = errors.Join(err, cause) // f says "canceled", as database/sql does
	}
	return err
}

// RenewLock prolongs the lease on key, held by whichever goroutine of this
// registry, to a TTL from now: the registry's, or the one given with WithTTL.
// It is Spring's renewLock. ErrNotHeld if the registry does not hold the key,
// else as Hold.Renew.
func (r *JdbcLockRegistry) RenewLock(ctx context.Context, key string, opts ...LockOption) error {
	path, err := r.path(key)
	if err != nil {
		return err
	}
	r.mu.Lock()
	var g *grant
	if e := r.cache.entries[path]; e != nil {
		g = e.grant
	}
	r.mu.Unlock()
	if g == nil {
		return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(key))
	}
	return g.renew(ctx, opts)
}

// ExpireUnusedOlderThan forgets the locks that nobody has used for age or
// longer; all unused ones if age is not positive. What is held or waited for
// stays. It is local housekeeping and asks the database nothing.
func (r *JdbcLockRegistry) ExpireUnusedOlderThan(age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.cache.longestUnused(); e != nil; e = r.cache.longestUnused() {
		if age > 0 && time.Since(e.lastUsed) < age {
			return
		}
		r.cache.forget(e)
	}
}

// SetCacheCapacity changes WithCacheCapacity's limit. Unused locks beyond it
// are forgotten at once, those in use when they are given back.
func (r *JdbcLockRegistry) SetCacheCapacity(n int) error {
	if n <= 0 {
		return invalid("CacheCapacity %d: want at least 1", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.capacity = n
	r.cache.shrink(n)
	return nil
}

// CacheSize is the number of locks the registry remembers now.
func (r *JdbcLockRegistry) CacheSize() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cache.entries)
}

func (r *JdbcLockRegistry) String() string { return fmt.Sprintf("lock registry on %v", r.repo) }
