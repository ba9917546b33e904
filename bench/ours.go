package main

import (
	"context"
	"os"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/wakeup/pglisten"
	"github.com/intlock/intlock/wakeup/sqlitewatch"
)

// ours is intlock.
func ours(vendor string, wake bool, opts []repository.Option, more ...registry.Option) func(context.Context) (locker, error) {
	return func(ctx context.Context) (locker, error) {
		db, err := openDB(vendor)
		if err != nil {
			return nil, err
		}
		repo, err := repository.New(ctx, db, opts...)
		if err != nil {
			return nil, err
		}
		if wake {
			var up registry.WakeUp
			if vendor == "sqlite" {
				second, err := openDB(vendor)
				if err != nil {
					return nil, err
				}
				up = sqlitewatch.New(second)
			} else if up, err = pglisten.New(os.Getenv("BENCH_POSTGRES")); err != nil {
				return nil, err
			}
			more = append(more, registry.WithWakeUp(up))
		}
		locks, err := registry.New(repo, more...)
		return intlocks{locks}, err
	}
}

var fast = []repository.Option{repository.WithNotify(), repository.WithAsyncRelease()}

type intlocks struct{ *registry.JdbcLockRegistry }

func (l intlocks) lock(ctx context.Context, key string) (func() error, error) {
	hold, err := l.Obtain(key).LockContext(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return hold.Unlock(context.Background()) }, nil
}
