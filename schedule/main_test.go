package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
	"github.com/intlock/intlock/schema"
)

func TestMain(m *testing.M) { testdb.Main(m, map[string]func(){"fuzz": fuzzChild, "die": dieChild}) }

// store is where the locks are: intlock's table, or one of ShedLock's.
type store struct {
	*testdb.DB
	shedlock bool
}

// each runs f on every database, with both tables.
func each(t *testing.T, f func(t *testing.T, s store)) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		must(t, schema.Apply(t.Context(), db, "INT_"))
		must(t, schema.ApplyShedLock(t.Context(), db, schema.DefaultShedLockTable))
		for _, shedlock := range []bool{false, true} {
			s := store{db, shedlock}
			t.Run(s.name(), func(t *testing.T) { f(t, s) })
		}
	})
}

func (s store) name() string {
	if s.shedlock {
		return "shedlock"
	}
	return "intlock"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(ctx context.Context, db *sql.DB, shedlock bool) (*registry.JdbcLockRegistry, error) {
	var repo repository.LockRepository
	var err error
	if shedlock {
		repo, err = repository.NewShedLock(ctx, db)
	} else {
		repo, err = repository.New(ctx, db, repository.WithTokens())
	}
	if err != nil {
		return nil, err
	}
	return registry.New(repo, registry.WithLogger(slog.New(slog.DiscardHandler)), registry.WithIdleBetweenTries(20*time.Millisecond))
}

// locks is a registry of another instance.
func (s store) locks(t *testing.T) *registry.JdbcLockRegistry {
	t.Helper()
	locks, err := open(t.Context(), s.DB.DB, s.shedlock)
	must(t, err)
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return locks
}

// instance is an executor of another instance, for tasks that end within a minute.
func (s store) instance(t *testing.T, opts ...schedule.Option) *schedule.Executor {
	t.Helper()
	e, err := schedule.New(s.locks(t), append([]schedule.Option{schedule.WithLockAtMostFor(time.Minute),
		schedule.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	must(t, err)
	return e
}

// execute runs f, tries again what a busy database refuses, and fails on errors.
func execute(t *testing.T, e *schedule.Executor, task schedule.Task, f func(context.Context) error, opts ...schedule.ExecuteOption) schedule.Result {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		result, err := e.Execute(t.Context(), task, f, opts...)
		if errors.Is(err, registry.ErrUnavailable) && !result.Executed() && time.Since(begin) < 10*time.Second {
			continue
		}
		must(t, err)
		return result
	}
}

func nothing(context.Context) error { return nil }

// runs and skips check what becomes of a task that is due.
func runs(t *testing.T, e *schedule.Executor, task schedule.Task) {
	t.Helper()
	if result := execute(t, e, task, nothing); !result.Executed() {
		t.Fatalf("%s: %v, want it executed", task.Name, result)
	}
}

func skips(t *testing.T, e *schedule.Executor, task schedule.Task) schedule.Result {
	t.Helper()
	ran := false
	result := execute(t, e, task, func(context.Context) error { ran = true; return nil })
	if result.Outcome != schedule.Locked || ran {
		t.Fatalf("%s: %v, ran %v, want it skipped", task.Name, result, ran)
	}
	return result
}

// waitRuns tries until the task runs, and returns when it began.
func waitRuns(t *testing.T, e *schedule.Executor, task schedule.Task) (began time.Time) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		if execute(t, e, task, func(context.Context) error { began = time.Now(); return nil }).Executed() {
			return began
		}
	}
	t.Fatalf("%s does not run again", task.Name)
	return began
}

// during runs inside while the task runs on e.
func during(t *testing.T, e *schedule.Executor, task schedule.Task, inside func(ctx context.Context)) {
	t.Helper()
	if !execute(t, e, task, func(ctx context.Context) error { inside(ctx); return nil }).Executed() {
		t.Fatalf("%s was skipped", task.Name)
	}
}

// A child is an instance of its own on the database of the test.
const driverEnv, dsnEnv, storeEnv, argEnv = "SCHEDULE_TEST_DRIVER", "SCHEDULE_TEST_DSN", "SCHEDULE_TEST_STORE", "SCHEDULE_TEST_ARG"

func (s store) spawn(t *testing.T, child, arg string) *testdb.Process {
	t.Helper()
	return testdb.Spawn(t, child, map[string]string{driverEnv: s.Driver, dsnEnv: s.DSN, storeEnv: s.name(), argEnv: arg})
}

func fatal(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func childExecutor() (*sql.DB, *schedule.Executor) {
	db, err := sql.Open(os.Getenv(driverEnv), os.Getenv(dsnEnv))
	fatal(err)
	locks, err := open(context.Background(), db, os.Getenv(storeEnv) == "shedlock")
	fatal(err)
	e, err := schedule.New(locks, schedule.WithLockAtMostFor(5*time.Minute))
	fatal(err)
	return db, e
}

// eventually repeats a statement of the test's own while SQLite is busy.
func eventually(f func() error) error {
	var err error
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(2 * time.Millisecond) {
		if err = f(); err == nil || !strings.Contains(err.Error(), "locked") {
			break
		}
	}
	return err
}
