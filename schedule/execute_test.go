package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
)

// recorder keeps events.
type recorder struct {
	mu  sync.Mutex
	all []schedule.Event
}

func (r *recorder) add(e schedule.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *recorder) kinds() (kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		kinds = append(kinds, e.Kind.String())
	}
	r.all = nil
	return kinds
}

// memory is an executor on locks in memory, for what is no matter of the database.
func memory(t *testing.T, opts ...schedule.Option) (*schedule.Executor, *recorder) {
	t.Helper()
	repo, err := repository.NewMemory(nil)
	must(t, err)
	locks, err := registry.New(repo)
	must(t, err)
	r := new(recorder)
	e, err := schedule.New(locks, append([]schedule.Option{schedule.WithLockAtMostFor(time.Minute), schedule.WithOnEvent(r.add)}, opts...)...)
	must(t, err)
	return e, r
}

func TestNested(t *testing.T) {
	e, events := memory(t)
	outer, inner := schedule.Task{Name: "outer"}, schedule.Task{Name: "inner"}
	during(t, e, outer, func(ctx context.Context) {
		// X1 X6: the same task runs under the lock that there is.
		result, err := e.Execute(ctx, outer, func(ctx context.Context) error { return schedule.AssertLocked(ctx) })
		if !result.Executed() || err != nil {
			t.Errorf("itself: %v, %v", result, err)
		}
		// X2: another one has its own, and is given back first.
		result, err = e.Execute(ctx, inner, func(ctx context.Context) error {
			if got := len(e.Active()); got != 2 { // T1
				t.Errorf("%d are active", got)
			}
			return schedule.AssertLocked(ctx)
		})
		if !result.Executed() || err != nil {
			t.Errorf("another: %v, %v", result, err)
		}
		// X10
		must(t, schedule.AssertLocked(ctx))
	})
	want := []string{"attempt", "acquired", "started",
		"started", "finished",
		"attempt", "acquired", "started", "finished", "released",
		"finished", "released"}
	if got := events.kinds(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if err := schedule.AssertLocked(t.Context()); !errors.Is(err, schedule.ErrNotLocked) { // X10
		t.Errorf("outside: %v", err)
	}
	if len(e.Active()) != 0 {
		t.Errorf("active: %v", e.Active())
	}
}

func TestEvents(t *testing.T) {
	e, events := memory(t)
	task := schedule.Task{Name: "job"}
	failed := errors.New("no paper")
	result, err := e.Execute(t.Context(), task, func(context.Context) error { time.Sleep(2 * time.Millisecond); return failed })
	if err != failed || !result.Executed() || result.Took < 2*time.Millisecond { // X3 X7
		t.Errorf("%v, %v", result, err)
	}
	if got, want := events.kinds(), []string{"attempt", "acquired", "started", "finished", "released"}; !slices.Equal(got, want) { // X4
		t.Errorf("events %v, want %v", got, want)
	}
	during(t, e, task, func(context.Context) {
		events.kinds()
		skips(t, e, task)
		if got, want := events.kinds(), []string{"attempt", "not acquired"}; !slices.Equal(got, want) { // X5
			t.Errorf("events %v, want %v", got, want)
		}
	})
	// X8: a handler that panics changes nothing.
	broken, _ := memory(t, schedule.WithOnEvent(func(schedule.Event) { panic("handler") }), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	runs(t, broken, task)
	runs(t, broken, task)
}

func TestPanic(t *testing.T) {
	e, events := memory(t)
	task := schedule.Task{Name: "job", LockAtLeastFor: 50 * time.Millisecond}
	func() {
		defer func() {
			if p := recover(); p != "paper jam" {
				t.Errorf("recovered %v", p)
			}
		}()
		e.Execute(t.Context(), task, func(context.Context) error { panic("paper jam") })
	}()
	if got, want := events.kinds(), []string{"attempt", "acquired", "started", "finished", "released"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	skips(t, e, task)
	waitRuns(t, e, task)
}

// The database is away: that is an error, and the job does not run.
func TestUnavailable(t *testing.T) {
	repo, err := repository.NewMemory(nil)
	must(t, err)
	locks, err := registry.New(repo)
	must(t, err)
	e, err := schedule.New(locks, schedule.WithLockAtMostFor(time.Minute))
	must(t, err)
	must(t, locks.Close(t.Context()))
	result, err := e.Execute(t.Context(), schedule.Task{Name: "job"}, func(context.Context) error { t.Error("it runs"); return nil })
	if result.Outcome != schedule.NotRun || !errors.Is(err, registry.ErrClosed) {
		t.Errorf("%v, %v", result, err)
	}
}

// Mistakes show when a task is defined.
func TestDefined(t *testing.T) {
	e, _ := memory(t)
	bare, err := schedule.New(must1(registry.New(must1(repository.NewMemory(nil)))))
	must(t, err)
	for _, c := range []struct {
		e    *schedule.Executor
		task schedule.Task
	}{
		{e, schedule.Task{}},
		{e, schedule.Task{Name: "x", LockAtMostFor: -1}},
		{e, schedule.Task{Name: "x", LockAtLeastFor: -1}},
		{e, schedule.Task{Name: "x", LockAtLeastFor: 2 * time.Minute}},
		{e, schedule.Task{Name: "x", LockAtMostFor: time.Second, LockAtLeastFor: time.Second + 1}},
		{e, schedule.Task{Name: "x", LockAtMostFor: 1}},
		{e, schedule.Task{Name: "x", LockAtMostFor: time.Second - 1, KeepAlive: schedule.KeepAliveOn}}, // K5
		{e, schedule.Task{Name: "x", KeepAlive: 7}},
		{bare, schedule.Task{Name: "x"}},
	} {
		if _, err := c.e.Job(c.task, nothing); !errors.Is(err, schedule.ErrTask) {
			t.Errorf("%+v: %v, want ErrTask", c.task, err)
		}
		if _, err := c.e.Execute(t.Context(), c.task, nothing); !errors.Is(err, schedule.ErrTask) {
			t.Errorf("%+v executed: %v, want ErrTask", c.task, err)
		}
	}
	for _, task := range []schedule.Task{
		{Name: "x"}, {Name: "x", LockAtMostFor: time.Second, LockAtLeastFor: time.Second}, {Name: "x", LockAtLeastFor: schedule.None},
	} {
		job, err := e.Job(task, nothing)
		must(t, err)
		if got := job.Task(); got.LockAtMostFor == 0 {
			t.Errorf("%+v has no default", got)
		}
		job.Func()()
	}
	if _, err := e.Job(schedule.Task{Name: "x"}, nil); !errors.Is(err, schedule.ErrTask) {
		t.Errorf("no function: %v", err)
	}
	for _, opts := range [][]schedule.Option{
		{schedule.WithLockAtMostFor(-1)}, {schedule.WithLockAtMostFor(time.Second), schedule.WithLockAtLeastFor(time.Minute)},
		{schedule.WithLockAtMostFor(time.Millisecond), schedule.WithKeepAlive(true)}, {schedule.WithTicks(nil, 0)}, {schedule.WithLogger(nil)},
	} {
		if _, err := schedule.New(must1(registry.New(must1(repository.NewMemory(nil)))), opts...); !errors.Is(err, schedule.ErrTask) {
			t.Errorf("executor: %v, want ErrTask", err)
		}
	}
	defaults, _ := memory(t, schedule.WithLockAtLeastFor(40*time.Millisecond))
	runs(t, defaults, schedule.Task{Name: "none", LockAtLeastFor: schedule.None})
	runs(t, defaults, schedule.Task{Name: "none", LockAtLeastFor: schedule.None})
	runs(t, defaults, schedule.Task{Name: "default"})
	skips(t, defaults, schedule.Task{Name: "default"})
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// One run per instant, on whichever instance is first, also when the run has ended.
func TestTicks(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		instances := make([]*schedule.Executor, 4)
		for i := range instances {
			instances[i] = s.instance(t)
		}
		task := schedule.Task{Name: "tick"}
		noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
		for tick := range 3 {
			instant := noon.Add(time.Duration(tick) * time.Minute)
			if tick%2 == 1 { // the same instant, as another instance writes it
				instant = instant.In(time.FixedZone("somewhere", 3600))
			}
			var mu sync.Mutex
			ran := map[schedule.Outcome]int{}
			var wg sync.WaitGroup
			for i, e := range instances {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 3 * time.Millisecond) // clocks differ
					result := execute(t, e, task, func(context.Context) error { return nil }, schedule.At(instant))
					mu.Lock()
					defer mu.Unlock()
					ran[result.Outcome]++
				})
			}
			wg.Wait()
			if ran[schedule.Executed] != 1 || ran[schedule.Executed]+ran[schedule.Locked]+ran[schedule.AlreadyDone] != len(instances) {
				t.Fatalf("instant %d: %v", tick, ran)
			}
			// Those that come late find it done, and the lock free.
			if result := execute(t, instances[3], task, nothing, schedule.At(noon.Add(time.Duration(tick)*time.Minute))); result.Outcome != schedule.AlreadyDone {
				t.Fatalf("late: %v", result)
			}
		}
		runs(t, instances[0], task)
		// A run that fails counts.
		_, err := instances[0].Execute(t.Context(), task, func(context.Context) error { return errors.New("failed") }, schedule.At(noon.Add(time.Hour)))
		if err == nil {
			t.Error("the error is gone")
		}
		if result := execute(t, instances[1], task, nothing, schedule.At(noon.Add(time.Hour))); result.Outcome != schedule.AlreadyDone {
			t.Errorf("after a failure: %v", result)
		}
	})
}
