package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/intlock/intlock/registry"
)

// run is one run of a job under its lock.
type run struct {
	executor *Executor
	task     Task
	hold     *registry.Hold

	mu   sync.Mutex // guards kept
	kept time.Time  // the lock stays at least until then
}

// keep raises the minimum: d from now. It is called after the grant was answered,
// or an extension was, so it never ends before the minimum counted from those.
func (r *run) keep(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); d > 0 && until.After(r.kept) {
		r.kept = until
	}
}

// runKey finds runs in contexts: that of one task, or with a zero value the
// innermost.
type runKey struct {
	executor *Executor
	name     string
}

type runContext struct {
	context.Context
	run *run
}

func (c runContext) Value(key any) any {
	if k, ok := key.(runKey); ok && (k == runKey{} || k == runKey{c.run.executor, c.run.task.Name}) {
		return c.run
	}
	return c.Context.Value(key)
}

// outer is the run of the same task that ctx is in.
func (e *Executor) outer(ctx context.Context, name string) *run {
	r, _ := ctx.Value(runKey{e, name}).(*run)
	return r
}

// do runs f and gives the lock back.
func (r *run) do(ctx context.Context, x execution, f func(context.Context) error) (result Result, err error) {
	e := r.executor
	e.tell(Event{Kind: Acquired, Task: r.task, Token: r.hold.Token()})
	if !x.tick.IsZero() {
		first, err := e.claim(ctx, x)
		if !first {
			if lost := r.hold.Unlock(ctx); lost != nil { // this was no run: there is no minimum
				err = errors.Join(err, lost)
			}
			if err == nil {
				result.Outcome = AlreadyDone
			}
			e.tell(Event{Kind: Released, Task: r.task, Result: result, Err: err})
			return result, err
		}
	}
	e.setActive(r, true)
	held := runContext{r.hold.Context(ctx), r}
	result.Outcome = Executed
	begin := time.Now()
	defer func() { // also if f panics
		result.Took = time.Since(begin)
		e.setActive(r, false)
		lost := r.release(ctx)
		if cause, ok := err.(*registry.LostError); ok && errors.Is(lost, registry.ErrLockLost) && cause.Key == r.hold.Key() {
			err = nil // f returned its context's cause: the release knows more of the same
		}
		if lost != nil {
			err = errors.Join(err, lost)
		}
		e.tell(Event{Kind: Released, Task: r.task, Result: result, Err: lost})
	}()
	return result, r.call(held, f)
}

// call runs f, and tells of it.
func (r *run) call(ctx context.Context, f func(context.Context) error) (err error) {
	r.executor.tell(Event{Kind: Started, Task: r.task})
	begin, returned := time.Now(), false
	defer func() {
		if !returned {
			err = errors.New("schedule: the job panicked or ended its goroutine") // for the event
		}
		r.executor.tell(Event{Kind: Finished, Task: r.task, Result: Result{Outcome: Executed, Took: time.Since(begin)}, Err: err})
	}()
	err = f(ctx)
	returned = true
	return err
}

// again runs f, of the same task, inside the run.
func (r *run) again(ctx context.Context, f func(context.Context) error) (Result, error) {
	if err := AssertLocked(ctx); err != nil {
		return Result{}, fmt.Errorf("schedule: task %q within itself: %w", r.task.Name, err)
	}
	begin := time.Now()
	err := r.call(ctx, f)
	return Result{Outcome: Executed, Took: time.Since(begin)}, err
}

// release gives the lock back, at once or when its minimum has passed.
func (r *run) release(ctx context.Context) error {
	r.mu.Lock()
	least := time.Until(r.kept)
	r.mu.Unlock()
	err := r.hold.UnlockAfter(ctx, least)
	if err != nil {
		err = fmt.Errorf("schedule: task %q: %w", r.task.Name, err)
	}
	return err
}

func (e *Executor) setActive(r *run, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if on {
		e.active[r] = struct{}{}
	} else {
		delete(e.active, r)
	}
}

// Active is the tasks that run now, in no order: ShedLock's TrackingLockProvider.
func (e *Executor) Active() []Task {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]Task, 0, len(e.active))
	for r := range e.active {
		all = append(all, r.task)
	}
	return all
}
