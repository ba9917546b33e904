package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/intlock/intlock/registry"
)

// CertMagic is the Locker, TryLocker and LockLeaseRenewer of certmagic: embed it in
// a Storage, so that of several instances one at a time obtains a certificate. It
// is safe for concurrent use.
type CertMagic struct {
	locks *registry.JdbcLockRegistry
	opts  []registry.LockOption

	mu    sync.Mutex // guards holds
	holds map[string]*registry.Hold
}

// NewCertMagic returns the lockers. The options are those of the lock calls; without
// any a lease is renewed until Unlock.
func NewCertMagic(locks *registry.JdbcLockRegistry, opts ...registry.LockOption) *CertMagic {
	return &CertMagic{locks: locks, opts: opts, holds: make(map[string]*registry.Hold)}
}

// Lock implements certmagic.Locker: it waits until name is free or ctx ends.
func (c *CertMagic) Lock(ctx context.Context, name string) error {
	hold, err := c.locks.Obtain(name).LockContext(ctx, c.opts...)
	if err == nil {
		c.remember(name, hold)
	}
	return err
}

// TryLock implements certmagic.TryLocker. That somebody else has the lock is no
// error.
func (c *CertMagic) TryLock(ctx context.Context, name string) (bool, error) {
	hold, err := c.locks.Obtain(name).TryLockContext(ctx, c.opts...)
	switch {
	case err == nil:
		c.remember(name, hold)
		return true, nil
	case errors.Is(err, registry.ErrNotAcquired) && ctx.Err() == nil:
		return false, nil
	}
	return false, err
}

// Unlock implements certmagic.Locker. It returns an error that matches
// registry.ErrLockLost if the lease was lost before.
func (c *CertMagic) Unlock(ctx context.Context, name string) error {
	c.mu.Lock()
	hold := c.holds[name]
	delete(c.holds, name)
	c.mu.Unlock()
	if hold == nil {
		return fmt.Errorf("%w: %s", registry.ErrNotHeld, name)
	}
	return hold.Unlock(ctx)
}

// RenewLockLease implements certmagic.LockLeaseRenewer: the lease lasts at least
// leaseDuration from now. It is only needed with options that stop the renewal.
func (c *CertMagic) RenewLockLease(ctx context.Context, name string, leaseDuration time.Duration) error {
	c.mu.Lock()
	hold := c.holds[name]
	c.mu.Unlock()
	if hold == nil {
		return fmt.Errorf("%w: %s", registry.ErrNotHeld, name)
	}
	return hold.Renew(ctx, registry.WithTTL(leaseDuration))
}

func (c *CertMagic) remember(name string, hold *registry.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds[name] = hold
}
