package schedule

import (
	"context"
	"fmt"
	"time"
)

// Job is a task and what it does, checked.
type Job struct {
	executor *Executor
	task     Task
	f        func(context.Context) error
}

// Job returns the job that runs f as task. Mistakes in the task, which match
// ErrTask, show here and not when it is due.
func (e *Executor) Job(task Task, f func(context.Context) error) (*Job, error) {
	if f == nil {
		return nil, fmt.Errorf("%w %q: it has no function", ErrTask, task.Name)
	}
	task = task.with(e.defaults)
	if err := task.complete(e.locks); err != nil {
		return nil, err
	}
	return &Job{e, task, f}, nil
}

// Task is the job's task, with the executor's defaults.
func (j *Job) Task() Task { return j.task }

// Run is Executor.Execute.
func (j *Job) Run(ctx context.Context, opts ...ExecuteOption) (Result, error) {
	return j.executor.Execute(ctx, j.task, j.f, opts...)
}

// Func is Run as a function that schedulers take. What became of a run is logged:
// errors at error level, skipped runs at debug level.
func (j *Job) Func() func() {
	return func() { j.log(j.Run(context.Background())) }
}

// FuncAt is Func for schedulers that say for which instant the job is due, see At.
func (j *Job) FuncAt() func(context.Context, time.Time) {
	return func(ctx context.Context, instant time.Time) { j.log(j.Run(ctx, At(instant))) }
}

func (j *Job) log(result Result, err error) {
	if err != nil {
		j.executor.logger.Error("job failed", "task", j.task.Name, "result", result.String(), "error", err)
		return
	}
	j.executor.logger.Debug("job", "task", j.task.Name, "result", result.String())
}
