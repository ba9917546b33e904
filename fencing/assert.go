package fencing

import (
	"context"
	"fmt"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

func AssertHeld(ctx context.Context, tx Tx, hold *registry.Hold) error {
	if hold == nil {
		return invalid("the hold is nil")
	}
	if tx == nil {
		return invalid("the transaction is nil")
	}
	deleted := false
	err := hold.Verify(ctx, func(ctx context.Context, repo repository.LockRepository, lease repository.Lease) (repository.LeaseStatus, error) {
		inTx, ok := repo.(interface {
			AssertHeld(context.Context, repository.Tx, repository.Lease) (repository.LeaseStatus, error)
		})
		if !ok {
			return repository.LeaseStatus{}, invalid("a lock kept by a %T is in no database that a transaction could assert it in: use a repository.DefaultLockRepository, or a Guard", repo)
		}
		status, err := inTx.AssertHeld(ctx, tx, lease)
		deleted = status.State == repository.LeaseDeleted
		return status, err
	})
	if err != nil && deleted {
		return fmt.Errorf("%w (the transaction's database has no row of the lock; is it the one that the locks are in?)", err)
	}
	return err
}
