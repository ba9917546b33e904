// Package gocronlock gives go-co-op/gocron its distributed Locker: of several
// instances that have a job, one runs it.
//
//	locker, err := gocronlock.New(locks, schedule.Task{LockAtMostFor: time.Minute, LockAtLeastFor: 5 * time.Second})
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// For gocron's Elector see package plugin.
package gocronlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schedule"
)

// Locker is a gocron.Locker. The key is the job's name: give each job one
// (gocron.WithName), as the default, the function's, may be that of several.
type Locker struct {
	locks *registry.JdbcLockRegistry
	task  schedule.Task
}

var _ gocron.Locker = (*Locker)(nil)

// New returns a locker whose locks are kept as task says; its name does not matter.
// With a KeepAlive the lock is renewed while the job runs. gocron does not say for
// which instant a job is due, and its jobs run a little apart on different instances:
// LockAtLeastFor has to be longer than their clocks differ. Errors match
// schedule.ErrTask.
func New(locks *registry.JdbcLockRegistry, task schedule.Task) (*Locker, error) {
	e, err := schedule.New(locks)
	if err != nil {
		return nil, err
	}
	task.Name = "gocron"
	if _, err := e.Job(task, func(context.Context) error { return nil }); err != nil {
		return nil, err
	}
	return &Locker{locks, task}, nil
}

// ErrSkipped is Lock's error where the job runs elsewhere: gocron then skips it.
var ErrSkipped = errors.New("gocronlock: the job runs on another instance, or has just run")

// Lock implements gocron.Locker. It does not wait.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	hold, err := l.locks.Obtain(key).TryLockContext(ctx, registry.WithTTL(l.task.LockAtMostFor),
		registry.WithRenewal(l.task.KeepAlive == schedule.KeepAliveOn))
	switch {
	case err == nil:
		return &held{hold, time.Now().Add(max(0, l.task.LockAtLeastFor))}, nil
	case errors.Is(err, registry.ErrNotAcquired):
		return nil, errors.Join(ErrSkipped, err)
	}
	return nil, err
}

type held struct {
	hold  *registry.Hold
	until time.Time
}

// Unlock implements gocron.Lock: the lock stays until its minimum has passed.
func (h *held) Unlock(ctx context.Context) error { return h.hold.UnlockAfter(ctx, time.Until(h.until)) }
