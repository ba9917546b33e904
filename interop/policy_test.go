package interop

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/leader"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
	"github.com/intlock/intlock/schema"
)

func event(t *testing.T, j *java, want string) {
	t.Helper()
	select {
	case got := <-j.events:
		if got != want {
			t.Fatalf("java says %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("java does not say %q", want)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

// Spring's LockRegistryLeaderInitiator and leader.Elector want one role: one leads at
// any time, and each takes over from the other.
func TestLeader(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		apply(t, db)
		j := start(t, db, newest, "TTL_MS=3000")
		var leads atomic.Bool
		e, err := leader.New(side(t, db), "role", leader.Candidate{
			OnGranted: func(ctx context.Context) { leads.Store(true); <-ctx.Done(); leads.Store(false) },
		}, leader.WithTTL(3*time.Second), leader.WithLogger(quiet))
		must(t, err)
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			return func() { cancel(); must(t, <-ended) }
		}
		stop := run()
		eventually(t, "Go leads", leads.Load)
		j.do("lead", hexed("role"), 200)
		for range 20 { // past the TTL, by its renewals
			if j.do("leads") == "true" || !e.IsLeader() {
				t.Fatal("Java leads beside Go")
			}
			time.Sleep(200 * time.Millisecond)
		}
		stop()
		event(t, j, "granted")
		stop = run()
		for range 10 {
			if leads.Load() || j.do("leads") != "true" {
				t.Fatal("Go leads beside Java")
			}
			time.Sleep(100 * time.Millisecond)
		}
		who, found, err := e.Leader(t.Context())
		if err != nil || !found || who.Self || who.ClientID == "" {
			t.Errorf("Leader = %+v, %v, %v", who, found, err)
		}
		j.do("resign")
		event(t, j, "revoked")
		eventually(t, "Go leads again", leads.Load)
		stop()
	})
}

// A Java task under ShedLock and one of schedule share their table: per period one of
// them runs, and both respect the other's minimum.
func TestShedLock(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		apply(t, db) // for Spring's start check
		must(t, schema.ApplyShedLock(t.Context(), db, schema.DefaultShedLockTable))
		j := start(t, db, newest)
		repo, err := repository.NewShedLock(t.Context(), db)
		must(t, err)
		locks, err := registry.New(repo, registry.WithLogger(quiet))
		must(t, err)
		defer locks.Close(context.Background())
		jobs, err := schedule.New(locks)
		must(t, err)
		const period = 500 * time.Millisecond
		task := schedule.Task{Name: "täglicher Bericht", LockAtMostFor: 10 * time.Second, LockAtLeastFor: period}
		execute := func() bool {
			result, err := jobs.Execute(t.Context(), task, func(context.Context) error { return nil })
			must(t, err)
			return result.Executed()
		}
		shed := func(work int) []any {
			return []any{"shedlock", hexed(task.Name), task.LockAtMostFor.Milliseconds(), period.Milliseconds(), work}
		}
		byJava, byGo := 0, 0
		for range 12 {
			ran := 0
			j.send(shed(0)...)
			if execute() {
				ran++
				byGo++
			}
			got, err := j.answer()
			must(t, err)
			if got == "executed" {
				ran++
				byJava++
			}
			if ran != 1 {
				t.Fatalf("%d ran in one period", ran)
			}
			if execute() || j.do(shed(0)...) == "executed" { // within the minimum of whoever ran
				t.Fatal("it ran again within the period")
			}
			time.Sleep(period + 100*time.Millisecond)
		}
		t.Logf("runs: %d by Java, %d by Go", byJava, byGo)
		// While one works the other is told who does.
		j.send(shed(600)...)
		time.Sleep(200 * time.Millisecond)
		result, err := jobs.Execute(t.Context(), task, func(context.Context) error { return nil })
		must(t, err)
		if result.Outcome != schedule.Locked || result.Holder == "" || time.Until(result.Until) < 5*time.Second {
			t.Errorf("%+v", result)
		}
		if got, err := j.answer(); err != nil || got != "executed" {
			t.Errorf("%s, %v", got, err)
		}
		time.Sleep(period)
		_, err = jobs.Execute(t.Context(), schedule.Task{Name: task.Name, LockAtMostFor: 10 * time.Second}, func(context.Context) error {
			if got := j.do(shed(0)...); got != "skipped" {
				t.Errorf("java %s while Go works", got)
			}
			return nil
		})
		must(t, err)
		if got := j.do(shed(0)...); got != "executed" {
			t.Errorf("java %s afterwards", got)
		}
	})
}
