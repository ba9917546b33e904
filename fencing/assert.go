package fencing

import (
	"context"
	"fmt"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// AssertHeld lets tx go on only while hold has its lock. When it returns nil,
// tx can commit only before anybody else is granted the lock, and whoever is
// granted it next sees what tx has written. It is exact: nobody's clock and no
// token can make two holders commit, and it holds if the lease runs out, or the
// process stops, between here and the commit. For that tx must be a transaction
// in the database that the locks are in, on whichever connection; the resources
// need nothing.
//
// It locks the lock's row, so that nobody can take it over before tx ends, and
// looks whether it is still this hold's. That is one statement, one round trip
// with lib/pq and go-sql-driver/mysql.
//
// Begin tx after the lock was acquired: what it has read before may be older
// than the previous holder's last write. Call AssertHeld either right after the
// begin, or right before the commit, but let all transactions under one lock do
// the same, or they may deadlock. Commit before you Unlock.
//
// Errors: registry.ErrLockLost if the lease has expired, was taken over or
// deleted, and the hold is lost from then on; registry.ErrNotHeld after its
// Unlock; ErrInvalid if the locks are not in an SQL database. Everything else
// is the database's error, wrapped, and says nothing about the hold; if it
// matches repository.ErrTransient, the whole transaction may be run again.
// After any error roll back.
//
// ctx is the statement's: as with any statement, tx cannot go on if it ends.
// AssertHeld waits for whoever has the row locked, no longer than the lease is
// trusted, ctx and the database's own lock timeout allow.
func AssertHeld(ctx context.Context, tx Tx, hold *registry.Hold) error {
	if tx == nil || hold == nil {
		return invalid("AssertHeld wants a transaction and a hold, not nil")
	}
	var status repository.LeaseStatus
	err := hold.Verify(ctx, func(ctx context.Context, repo repository.LockRepository, lease repository.Lease) (_ repository.LeaseStatus, err error) {
		inTx, ok := repo.(asserter)
		if !ok {
			return status, invalid("the locks of a %T are in no database that tx could lock their rows in: use a repository.DefaultLockRepository, or a Guard", repo)
		}
		status, err = inTx.AssertHeld(ctx, tx, lease)
		return status, err
	})
	if err != nil && status.State == repository.LeaseDeleted {
		return fmt.Errorf("%w (tx sees no row of this lock: is it in the database that the locks are in?)", err)
	}
	return err
}

// asserter is a repository whose locks can be asserted in a transaction, such
// as repository.DefaultLockRepository.
type asserter interface {
	AssertHeld(ctx context.Context, tx repository.Tx, lease repository.Lease) (repository.LeaseStatus, error)
}
