package cronlock_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
	"github.com/intlock/intlock/schedule/cronlock"
	"github.com/intlock/intlock/schema"
	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"
)

// instances opens executors of several instances on one database.
func instances(t *testing.T, n int) (all []*schedule.Executor) {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	for i := range n {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		if i == 0 {
			if err := schema.Apply(t.Context(), db, schema.DefaultPrefix); err != nil {
				t.Fatal(err)
			}
		}
		repo, err := repository.New(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		locks, err := registry.New(repo)
		if err != nil {
			t.Fatal(err)
		}
		e, err := schedule.New(locks, schedule.WithLockAtMostFor(time.Minute), schedule.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// Three schedulers have the job; it runs once for each second.
func TestAdd(t *testing.T) {
	var mu sync.Mutex
	ran := map[int64]int{}
	for _, e := range instances(t, 3) {
		job, err := e.Job(schedule.Task{Name: "every second"}, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			ran[time.Now().Unix()]++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c := cron.New(cron.WithSeconds())
		if _, err := cronlock.Add(c, "* * * * * *", job); err != nil {
			t.Fatal(err)
		}
		if _, err := cronlock.Add(c, "not a spec", job); err == nil {
			t.Error("no error")
		}
		c.Start()
		defer c.Stop()
	}
	time.Sleep(4200 * time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	runs := 0
	for _, n := range ran {
		runs += n
	}
	if runs < 3 || runs > 5 { // four instants, or five
		t.Errorf("it ran %d times in four seconds: %v", runs, ran)
	}
}

func TestWrap(t *testing.T) {
	all := instances(t, 2)
	task := schedule.Task{Name: "wrapped", LockAtLeastFor: time.Minute}
	ran := 0
	for _, e := range all {
		job := cron.NewChain(cronlock.Wrap(e, task, func(err error) { t.Error(err) })).Then(cron.FuncJob(func() { ran++ }))
		job.Run()
		job.Run()
	}
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
	wrong := error(nil)
	cron.NewChain(cronlock.Wrap(all[0], schedule.Task{}, func(err error) { wrong = err })).Then(cron.FuncJob(func() { ran++ })).Run()
	if wrong == nil || ran != 1 {
		t.Errorf("a wrong task: %v", wrong)
	}
}
