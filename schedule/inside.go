package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/registry"
)

// ErrNotLocked is returned by AssertLocked and Extend outside of a job.
var ErrNotLocked = errors.New("schedule: not within a job that holds its lock")

// AssertLocked returns nil if ctx comes from a job that runs under its lock now,
// the innermost if there are several. Otherwise it returns ErrNotLocked, as it does
// when the job has ended, or an error that matches registry.ErrLockLost. Call it at
// the beginning of a function that must never run unlocked: ShedLock's LockAssert.
// It asks no database; for what the commit has to prove see fencing.AssertHeld.
func AssertLocked(ctx context.Context) error {
	r, ok := ctx.Value(runKey{}).(*run)
	switch {
	case !ok:
		return ErrNotLocked
	case r.hold.Held():
		return nil
	}
	if cause := context.Cause(r.hold.Context(context.Background())); errors.Is(cause, registry.ErrLockLost) {
		return cause
	}
	return fmt.Errorf("%w: %q has ended", ErrNotLocked, r.task.Name)
}

// Extend prolongs the lock of the job that ctx comes from, the innermost if there
// are several: it lasts at least atMost from now, and stays at least atLeast from
// now; of that and of what was said before, the later counts. It is ShedLock's
// LockExtender, but for that the lock never becomes shorter. It may be called
// again and again.
//
// Errors: ErrNotLocked; ErrTask for durations that do not fit; registry.ErrLockLost
// if the lock is lost, and registry.ErrUnavailable if the database did not answer,
// in both of which cases nothing is prolonged.
func Extend(ctx context.Context, atMost, atLeast time.Duration) error {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return ErrNotLocked
	}
	extended := Task{Name: r.task.Name, LockAtMostFor: atMost, LockAtLeastFor: atLeast}
	if err := extended.complete(r.executor.locks); err != nil {
		return err
	}
	err := r.hold.Renew(ctx, registry.WithTTL(atMost))
	switch {
	case errors.Is(err, registry.ErrNotHeld):
		return fmt.Errorf("%w: %q has ended", ErrNotLocked, r.task.Name)
	case err != nil:
		return fmt.Errorf("schedule: extend task %q: %w", r.task.Name, err)
	}
	r.keep(atLeast)
	return nil
}
