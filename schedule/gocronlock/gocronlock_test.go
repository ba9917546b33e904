package gocronlock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
	"github.com/intlock/intlock/schedule/gocronlock"
	"github.com/intlock/intlock/schema"
	_ "modernc.org/sqlite"
)

func registries(t *testing.T, n int) (all []*registry.JdbcLockRegistry) {
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
		all = append(all, locks)
	}
	return all
}

// Three schedulers have the job, which is due every second; the minimum keeps it
// from running more than once for each.
func TestLocker(t *testing.T) {
	var ran atomic.Int32
	for _, locks := range registries(t, 3) {
		locker, err := gocronlock.New(locks, schedule.Task{LockAtMostFor: time.Minute, LockAtLeastFor: 800 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
		if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { ran.Add(1) }), gocron.WithName("every second")); err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
	time.Sleep(4200 * time.Millisecond)
	if n := ran.Load(); n < 2 || n > 5 {
		t.Errorf("it ran %d times in four seconds", n)
	}
}

func TestLock(t *testing.T) {
	all := registries(t, 2)
	a, err := gocronlock.New(all[0], schedule.Task{LockAtMostFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b, err := gocronlock.New(all[1], schedule.Task{LockAtMostFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := a.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lock(t.Context(), "job"); !errors.Is(err, gocronlock.ErrSkipped) {
		t.Errorf("err = %v, want ErrSkipped", err)
	}
	if err := lock.Unlock(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lock(t.Context(), "job"); err != nil {
		t.Error(err)
	}
	if _, err := gocronlock.New(all[0], schedule.Task{LockAtMostFor: time.Second, LockAtLeastFor: time.Minute}); !errors.Is(err, schedule.ErrTask) {
		t.Errorf("err = %v, want ErrTask", err)
	}
}
