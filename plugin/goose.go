package plugin

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/intlock/intlock/registry"
)

// Goose lets one process at a time migrate: it is both a lock.Locker and a
// lock.SessionLocker of goose. The database or connection that goose passes is not
// used, as the lock is a row, in whatever database the registry's repository is on. The
// lock table must be there before the first migration: see schema.Apply.
//
// The lease is renewed while the migrations run. One process uses one of it.
type Goose struct {
	lock *registry.JdbcLock
	opts []registry.LockOption

	mu   sync.Mutex // guards hold
	hold *registry.Hold
}

// NewGoose returns a locker under key, such as "goose". The options are those of the
// lock calls: registry.WithWait, so that a process does not wait for ever.
func NewGoose(locks *registry.JdbcLockRegistry, key string, opts ...registry.LockOption) *Goose {
	return &Goose{lock: locks.Obtain(key), opts: opts}
}

// Lock implements lock.Locker.
func (g *Goose) Lock(ctx context.Context, _ *sql.DB) error { return g.acquire(ctx) }

// Unlock implements lock.Locker. It returns an error that matches
// registry.ErrLockLost if the lease was lost while the migrations ran.
func (g *Goose) Unlock(ctx context.Context, _ *sql.DB) error { return g.release(ctx) }

// SessionLock implements lock.SessionLocker.
func (g *Goose) SessionLock(ctx context.Context, _ *sql.Conn) error { return g.acquire(ctx) }

// SessionUnlock implements lock.SessionLocker, as Unlock.
func (g *Goose) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return g.release(ctx) }

func (g *Goose) acquire(ctx context.Context) error {
	hold, err := g.lock.LockContext(ctx, g.opts...)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = hold
	return nil
}

func (g *Goose) release(ctx context.Context) error {
	g.mu.Lock()
	hold := g.hold
	g.hold = nil
	g.mu.Unlock()
	if hold == nil {
		return fmt.Errorf("%w: %s", registry.ErrNotHeld, g.lock.Key())
	}
	return hold.Unlock(ctx)
}
