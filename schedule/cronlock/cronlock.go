// Package cronlock runs the jobs of robfig/cron on one instance only.
//
//	c := cron.New()
//	id, err := cronlock.Add(c, "0 6 * * *", report) // a *schedule.Job
//
// Every instance has the same line; for each instant at which the job is due one
// of them runs it.
package cronlock

import (
	"context"
	"sync/atomic"

	"github.com/intlock/intlock/schedule"
	"github.com/robfig/cron/v3"
)

// Add adds a job that runs once for each instant of spec, on whichever instance is
// first: schedule.At with the instant that the cron planned. With "@every", which
// counts from the start of each process, it is once for each process: use Wrap, and
// LockAtLeastFor, there. What becomes of a run is logged as schedule.Job.Func does.
func Add(c *cron.Cron, spec string, job *schedule.Job) (cron.EntryID, error) {
	var id atomic.Int64
	run := job.FuncAt()
	entry, err := c.AddFunc(spec, func() {
		run(context.Background(), c.Entry(cron.EntryID(id.Load())).Prev)
	})
	id.Store(int64(entry)) // a job is due a second from now at the earliest
	return entry, err
}

// Wrap is for cron.WithChain, or for one job with cron.NewChain: jobs run under the
// lock of the task, and are skipped while it is held elsewhere. failed, which may be
// nil, gets the error of a run that the database did not answer or whose lock was
// lost.
func Wrap(e *schedule.Executor, task schedule.Task, failed func(error)) cron.JobWrapper {
	return func(next cron.Job) cron.Job {
		return cron.FuncJob(func() {
			_, err := e.Execute(context.Background(), task, func(context.Context) error {
				next.Run()
				return nil
			})
			if err != nil && failed != nil {
				failed(err)
			}
		})
	}
}
