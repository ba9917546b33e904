package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/intlock/intlock/registry"
)

// Executor runs jobs under their locks: ShedLock's LockingTaskExecutor. It is safe
// for concurrent use.
type Executor struct {
	locks    *registry.JdbcLockRegistry
	ticks    *registry.JdbcLockRegistry
	defaults Task
	memory   time.Duration
	onEvent  func(Event)
	logger   *slog.Logger

	mu     sync.Mutex // guards active
	active map[*run]struct{}
}

// Option configures an Executor.
type Option func(*Executor)

// WithLockAtMostFor sets the LockAtMostFor of tasks that have none. Default: none,
// so that each task needs its own.
func WithLockAtMostFor(d time.Duration) Option {
	return func(e *Executor) { e.defaults.LockAtMostFor = d }
}

// WithLockAtLeastFor sets the LockAtLeastFor of tasks that have none. Default: no
// minimum.
func WithLockAtLeastFor(d time.Duration) Option {
	return func(e *Executor) { e.defaults.LockAtLeastFor = d }
}

// WithKeepAlive says whether locks are renewed while their jobs run, unless a task
// says otherwise. Default: false, as with ShedLock.
func WithKeepAlive(on bool) Option {
	return func(e *Executor) {
		e.defaults.KeepAlive = KeepAliveOff
		if on {
			e.defaults.KeepAlive = KeepAliveOn
		}
	}
}

// WithTicks sets where, and for how long, it is remembered that a run for an instant
// has begun, see At: as leases of locks, and for at least memory, which must be
// longer than the clocks of instances differ and a run may be late. locks are the
// executor's own if it is nil. On ShedLock's table, where rows stay for ever, those
// of another table are better. Default: the executor's own, one hour.
func WithTicks(locks *registry.JdbcLockRegistry, memory time.Duration) Option {
	return func(e *Executor) { e.ticks, e.memory = locks, memory }
}

// WithOnEvent has f called with each Event, on the goroutine that runs the job. It
// must be quick. What it panics with is logged, and changes nothing.
func WithOnEvent(f func(Event)) Option { return func(e *Executor) { e.onEvent = f } }

// WithLogger sets the logger for what a job of Func does, skipped runs at debug level
// and errors at error level, and for events whose handler panics. Default:
// slog.Default().
func WithLogger(l *slog.Logger) Option { return func(e *Executor) { e.logger = l } }

// New returns an executor on locks, whose own TTL and renewal do not matter.
// Errors match ErrTask: they are about defaults that no task could have.
func New(locks *registry.JdbcLockRegistry, opts ...Option) (*Executor, error) {
	e := &Executor{locks: locks, memory: time.Hour, logger: slog.Default(), active: make(map[*run]struct{})}
	for _, o := range opts {
		o(e)
	}
	if e.ticks == nil {
		e.ticks = locks
	}
	if locks == nil || e.logger == nil {
		return nil, fmt.Errorf("%w: New and WithLogger take no nil", ErrTask)
	}
	if e.memory <= 0 {
		return nil, fmt.Errorf("%w: WithTicks: %v is no time to remember a run", ErrTask, e.memory)
	}
	defaults := e.defaults
	defaults.Name = "the executor's defaults"
	if defaults.LockAtMostFor == 0 {
		return e, defaults.check()
	}
	if err := defaults.complete(locks); err != nil {
		return nil, err
	}
	return e, nil
}

// ExecuteOption changes one call of Execute.
type ExecuteOption func(*execution)

type execution struct {
	task Task
	tick time.Time
}

// At says for which instant the job is due: the job runs once for each, on whichever
// instance comes first. The others skip it with AlreadyDone, also if they come when
// it has ended and its lock is free. Each instance must name the same instant, as
// schedulers do that go by the calendar ("at 6:00"), and those do not that count
// from the start of the process ("every 10 minutes").
//
// A run that has begun counts, whether it succeeds or not: with At a job runs at
// most once for an instant.
func At(instant time.Time) ExecuteOption { return func(x *execution) { x.tick = instant } }

// Execute runs f if the task's lock is free, and else skips it without waiting and
// without an error. The lock is given back when f returns, panics or exits, but not
// before LockAtLeastFor has passed since it was granted.
//
// f's context ends with ctx, and with a cause that matches registry.ErrLockLost
// when the lock is lost, a little before another instance can have it. Within f,
// and with its context, Execute of the same task runs its function under the same
// lock, AssertLocked says that the lock is held, Extend prolongs it, and
// registry.HoldFromContext gives the hold and its fencing token.
//
// The error joins f's and what came of giving the lock back: registry.ErrLockLost
// if f took longer than the lock was held, so that the job may have run twice. It is
// registry.ErrUnavailable, and f did not run, if the database did not answer, and
// matches ErrTask if the task is wrong; Job finds that out before the task is due.
func (e *Executor) Execute(ctx context.Context, task Task, f func(context.Context) error, opts ...ExecuteOption) (Result, error) {
	x := execution{task: task.with(e.defaults)}
	for _, o := range opts {
		o(&x)
	}
	if err := x.task.complete(e.locks); err != nil {
		return Result{}, err
	}
	if outer := e.outer(ctx, task.Name); outer != nil {
		return outer.again(ctx, f)
	}
	e.tell(Event{Kind: Attempt, Task: x.task})
	hold, err := e.locks.Obtain(x.task.Name).TryLockContext(ctx, x.task.terms()...)
	if err != nil {
		return e.refused(x, err)
	}
	r := &run{executor: e, task: x.task, hold: hold}
	r.keep(x.task.least())
	return r.do(ctx, x, f)
}

// terms are the lock call's.
func (t Task) terms() []registry.LockOption {
	return []registry.LockOption{registry.WithTTL(t.LockAtMostFor), registry.WithRenewal(t.KeepAlive == KeepAliveOn)}
}

// refused is the result without the lock.
func (e *Executor) refused(x execution, err error) (Result, error) {
	var held *registry.NotAcquiredError
	if !errors.As(err, &held) || held.Cause != nil {
		err = fmt.Errorf("schedule: task %q: %w", x.task.Name, err)
		e.tell(Event{Kind: Failed, Task: x.task, Err: err})
		return Result{}, err
	}
	result := Result{Outcome: Locked, Holder: held.Holder, ClientID: held.ClientID}
	if held.Remaining > 0 {
		result.Until = time.Now().Add(held.Remaining)
	}
	e.tell(Event{Kind: NotAcquired, Task: x.task, Result: result})
	return result, nil
}

// claim notes that a run for the tick begins, and reports whether it is the first.
func (e *Executor) claim(ctx context.Context, x execution) (first bool, err error) {
	key := x.task.Name + " @ " + x.tick.UTC().Format(time.RFC3339Nano)
	hold, err := e.ticks.Obtain(key).TryLockContext(ctx, registry.WithTTL(e.memory))
	switch {
	case err == nil:
		// The lease lasts on as a row, so that nothing has to be kept in the process.
		err = hold.UnlockAfter(ctx, e.memory)
	case errors.Is(err, registry.ErrNotAcquired) && ctx.Err() == nil:
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("schedule: task %q: is it done for %v? %w", x.task.Name, x.tick, err)
	}
	return true, nil
}
