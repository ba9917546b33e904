package registry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Hold is a lock that was acquired: the proof of it, and the handle to give it
// back. Go has no identity of goroutines, so whoever has the Hold is the
// owner; it may be passed on, and used by several goroutines at once.
//
// A hold has to be unlocked. If it is not, its lease is renewed as long as the
// process lives (unless WithMaxHold or WithRenewal say otherwise; then other
// processes can have the lock when the lease has ended, but in this process it
// stays taken).
type Hold struct {
	grant    *grant
	released atomic.Bool

	contexts map[*context.CancelCauseFunc]struct{} // that still stand; guarded by grant.mu
}

// holdContext carries a hold: for the nested lock calls that join it, and for
// HoldFromContext.
type holdContext struct {
	context.Context
	hold *Hold
}

// holdKey asks a context for the hold of one lock, or, being zero, for the
// innermost hold of all.
type holdKey struct {
	registry *JdbcLockRegistry
	path     string
}

func (c holdContext) Value(key any) any {
	if k, ok := key.(holdKey); ok {
		g := c.hold.grant
		if k == (holdKey{}) || k == (holdKey{g.registry, g.entry.lock.path}) {
			return c.hold
		}
	}
	return c.Context.Value(key)
}

// HoldFromContext returns the hold whose Context ctx is or descends from, the
// innermost if there are several: inside ExecuteLocked, the hold of that call.
func HoldFromContext(ctx context.Context) (*Hold, bool) {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	return h, ok
}

// Key is the key of the lock.
func (h *Hold) Key() string { return h.grant.key }

// Token is the fencing token of the grant: a number above those of all earlier
// grants of this key, of any process. It stays the same over renewals, and holds
// that share a lease share it. Give it to package fencing, or along with each
// write to whatever else can compare it with the highest it has seen. It is 0 if
// the repository draws none; see repository.WithTokens.
func (h *Hold) Token() int64 { return h.grant.token }

// Context returns a context that ends with parent, when the lease is lost, when
// the registry is closed, or when this hold is unlocked; context.Cause then
// matches ErrLockLost, ErrClosed or ErrReleased. Work that must not outlive the
// lock runs under it.
//
// A lock call for the same key with this context joins the hold instead of
// waiting for it. All goroutines that have the context are one owner: among
// them the lock excludes nobody.
func (h *Hold) Context(parent context.Context) context.Context {
	g := h.grant
	ctx, cancel := context.WithCancelCause(holdContext{parent, h})
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case h.released.Load():
		cancel(ErrReleased)
		return ctx
	case g.lost != nil:
		cancel(g.lost)
		return ctx
	case g.registry.isClosing():
		cancel(closedError(g.key))
		return ctx
	}
	if h.contexts == nil {
		h.contexts = make(map[*context.CancelCauseFunc]struct{})
	}
	h.contexts[&cancel] = struct{}{}
	context.AfterFunc(ctx, func() { // a long hold does not collect what ended before it
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(h.contexts, &cancel)
	})
	return ctx
}

func (h *Hold) endContexts(cause error) {
	h.grant.mu.Lock()
	ending := h.contexts
	h.contexts = nil
	h.grant.mu.Unlock()
	for cancel := range ending {
		(*cancel)(cause)
	}
}

// Held reports whether the lock is still this hold's. It reads the clocks, not
// a flag, so it tells the truth to code that wakes from a long pause. Once it
// has said no it never says yes again.
func (h *Hold) Held() bool { return !h.released.Load() && h.grant.check() == nil }

// Remaining is how long the hold can still be relied on if its lease is not
// renewed, 0 if not at all. It ends a little before the lease in the database
// does, and with WithMaxHold's time.
func (h *Hold) Remaining() time.Duration {
	if !h.Held() {
		return 0
	}
	return max(0, h.grant.remaining())
}

// Renew prolongs the lease to a TTL from now: the registry's, or the one given
// with WithTTL. It never shortens it. It returns ErrLockLost if the lease has
// been lost, and never revives it; ErrNotHeld after Unlock; ErrUnavailable if
// the database did not answer, in which case the lease goes on to its old end.
// ctx limits nothing but carries values.
func (h *Hold) Renew(ctx context.Context, opts ...LockOption) error {
	if h.released.Load() {
		return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(h.grant.key))
	}
	return h.grant.renew(ctx, opts)
}

// Unlock gives the lock back. It works under a context that has ended too: ctx
// carries values and limits nothing; the database gets the time of the TTL to
// answer, at least one second and at most five.
//
// It returns ErrLockLost if the lease ended before, see LostError; ErrNotHeld
// if this hold was unlocked already, with nothing done; ErrUnavailable if the
// database did not answer. In every case the local queue goes on, and the row
// of a successor is never touched. A row that could not be deleted is deleted
// in the background, or ends with its TTL.
//
// If other holds share the lease (see LockContext), Unlock only ends this one.
func (h *Hold) Unlock(ctx context.Context) error {
	if !h.released.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: unlock %s", ErrNotHeld, quote(h.grant.key))
	}
	return h.grant.drop(ctx, h)
}

// UnlockAfter is Unlock, but the lock stays taken until d from now, for every
// process, this one too: a job that must not run again too soon (ShedLock's
// lockAtLeastFor), a quiet period after a request. It outlives the process, as the
// row stays in the table. The hold ends at once as with Unlock, so that the lock
// cannot be renewed or given back earlier. If other holds share the lease, the
// latest of their ends counts.
//
// Unless d is positive it is Unlock. The errors are Unlock's. If the lease was
// lost, nothing is kept; if the database did not answer, the lock stays taken at
// least until its lease ends.
func (h *Hold) UnlockAfter(ctx context.Context, d time.Duration) error {
	if !h.released.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: unlock %s", ErrNotHeld, quote(h.grant.key))
	}
	h.grant.keepFor(d)
	return h.grant.drop(ctx, h)
}

// holdIn returns the hold of this lock that ctx carries.
func (l *JdbcLock) holdIn(ctx context.Context) *Hold {
	h, _ := ctx.Value(l.asked).(*Hold)
	return h
}

// join adds a hold to the grant of h. It returns nothing if h was unlocked
// already: the caller then acquires the lock like anyone else.
func (h *Hold) join(ctx context.Context, c call) (*Hold, error) {
	g := h.grant
	lost := g.check()
	nested := &Hold{grant: g}
	g.mu.Lock()
	switch {
	case len(g.members) == 0 || h.released.Load():
		g.mu.Unlock()
		return nil, nil
	case lost != nil:
		g.mu.Unlock()
		return nil, lost // waiting would be for ourselves
	case ctx.Err() != nil:
		g.mu.Unlock()
		return nil, &NotAcquiredError{Key: g.key, Cause: contextCause(ctx)}
	}
	g.members = append(g.members, nested)
	g.mu.Unlock()

	if c.ttlSet && g.remaining() < c.ttl-margin(c.ttl) {
		if err := g.renew(ctx, []LockOption{WithTTL(c.ttl)}); err != nil {
			nested.released.Store(true)
			g.drop(ctx, nested)
			return nil, err
		}
	}
	return nested, nil
}
