// Package schedule runs jobs on one instance only: whichever instance finds the
// job's lock free runs it, and the others skip it. It is what ShedLock does for
// Java, with its words and its rules, on the locks of package registry.
//
//	jobs, err := schedule.New(locks, schedule.WithLockAtMostFor(10*time.Minute))
//	report, err := jobs.Job(schedule.Task{Name: "daily report"}, sendReport)
//
//	cron.AddFunc("0 6 * * *", report.Func()) // on every instance
//
// It is a lock, not a scheduler: when the job is due, each instance's own
// scheduler says.
//
// # How long a lock is held
//
// LockAtMostFor is the lease: for how long the lock stays if the process dies in
// the middle. Take several times what the job takes. A job that takes longer loses
// its lock: its context ends a little before the lease does, the run is reported
// as an error that matches registry.ErrLockLost, and another instance may have
// begun. With a keep-alive the lease is renewed while the job runs, so that
// LockAtMostFor can be short and a dead process is replaced soon.
//
// LockAtLeastFor is the minimum: for how long after its grant the lock stays at
// least, also if the job takes no time, and if the process ends. It keeps
// instances whose clocks differ from running a short job one after the other. With
// At that can be had exactly: a job runs once for each instant it is due.
package schedule
