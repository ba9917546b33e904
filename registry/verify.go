package registry

import (
	"context"
	"fmt"

	"github.com/intlock/intlock/repository"
)

// Verify asks the store itself whether the lock is still this hold's, in a way
// that the registry does not know: ask gets the repository and the lease, and
// returns the lease's state. It is the hook for package fencing, which asks in
// the caller's own database transaction (fencing.AssertHeld).
//
// Verify returns nil only if ask found that the lease stands, and the process
// trusts in it before and after. If ask found it expired, taken over or deleted
// the hold is lost from then on, and Verify returns ErrLockLost, see LostError.
// A hold that is lost already returns ErrLockLost and one that was unlocked
// ErrNotHeld, both without asking. An error of ask says nothing about the hold
// and comes back wrapped.
//
// ask runs on the caller's goroutine. Its context ends with ctx, and no later
// than the lease that the process trusts in when Verify is called.
func (h *Hold) Verify(ctx context.Context, ask func(context.Context, repository.LockRepository, repository.Lease) (repository.LeaseStatus, error)) error {
	if err := h.ended(); err != nil {
		return err
	}
	g := h.grant
	g.mu.Lock()
	g.verified = true // it is not handed on: see letGo
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, g.remaining())
	defer cancel()
	status, err := ask(ctx, g.registry.repo, g.attempt.lease)
	if ended := h.ended(); ended != nil {
		return ended // by whatever: an Unlock that was faster has deleted the row
	}
	if err != nil {
		return fmt.Errorf("registry: verify lock %s: %w", quote(g.key), err)
	}
	switch status.State {
	case repository.LeaseStands:
		return nil
	case repository.LeaseExpired, repository.LeaseTaken, repository.LeaseDeleted:
		if lost := g.lose(lossOf(status)); lost != nil {
			return lost
		}
		return h.ended() // an Unlock was faster
	}
	return fmt.Errorf("registry: verify lock %s: the answer is %q, which decides nothing", quote(g.key), status.State)
}

// ended says why the hold is not to be used any more, nil while it is.
func (h *Hold) ended() error {
	g := h.grant
	if lost := g.check(); lost != nil {
		return lost
	}
	if h.released.Load() || g.isReturning() {
		return fmt.Errorf("%w: verify %s", ErrNotHeld, quote(g.key))
	}
	return nil
}
