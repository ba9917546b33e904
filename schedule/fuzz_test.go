package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schedule"
)

// ShedLock's FuzzTester: 8 workers on 2 names, each of which succeeds 100 times,
// but for one that does so 10 times. A success reads an unprotected counter, waits,
// and writes one more. In the end the counters are 310 and 400.
const fuzzWorkers, fuzzRounds, fuzzShort = 4, 100, 10

func prepareCounters(t *testing.T, db *testdb.DB) {
	for _, text := range []string{"CREATE TABLE COUNTER (NAME VARCHAR(20) PRIMARY KEY, N INTEGER NOT NULL)",
		"INSERT INTO COUNTER VALUES ('one', 0), ('two', 0)"} {
		_, err := db.Exec(text)
		must(t, err)
	}
}

// fuzzWorker is one of the workers.
func fuzzWorker(ctx context.Context, db *sql.DB, e *schedule.Executor, name string, rounds int) error {
	task := schedule.Task{Name: name, LockAtMostFor: 5 * time.Minute, LockAtLeastFor: 5 * time.Millisecond}
	for done := 0; done < rounds; {
		result, err := e.Execute(ctx, task, func(context.Context) error {
			var n int
			if err := eventually(func() error { return db.QueryRow("SELECT N FROM COUNTER WHERE NAME = '" + name + "'").Scan(&n) }); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			return eventually(func() error {
				_, err := db.Exec(fmt.Sprintf("UPDATE COUNTER SET N = %d WHERE NAME = '%s'", n+1, name))
				return err
			})
		})
		switch {
		case result.Executed() && err != nil:
			return err
		case result.Executed():
			done++
		case err != nil && !errors.Is(err, registry.ErrUnavailable):
			return err
		default:
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// fuzzers are the workers of one name: "one" has the short one.
func fuzzers(db *sql.DB, e *schedule.Executor, name string) error {
	errs := make(chan error, fuzzWorkers)
	for i := range fuzzWorkers {
		rounds := fuzzRounds
		if name == "one" && i == 0 {
			rounds = fuzzShort
		}
		go func() { errs <- fuzzWorker(context.Background(), db, e, name, rounds) }()
	}
	var failed error
	for range fuzzWorkers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func checkCounters(t *testing.T, db *testdb.DB, times int) {
	t.Helper()
	for name, want := range map[string]int{"one": 310 * times, "two": 400 * times} {
		var n int
		must(t, db.QueryRow("SELECT N FROM COUNTER WHERE NAME = '"+name+"'").Scan(&n))
		if n != want {
			t.Errorf("counter %s is %d, want %d", name, n, want)
		}
	}
}

// C7: one process.
func TestFuzz(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		s.Exec("DROP TABLE COUNTER")
		prepareCounters(t, s.DB)
		e := s.instance(t)
		var wg sync.WaitGroup
		for _, name := range []string{"one", "two"} {
			wg.Go(func() {
				if err := fuzzers(s.DB.DB, e, name); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		checkCounters(t, s.DB, 1)
	})
}

// C7 with four processes, two of each name.
func TestFuzzProcesses(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		s.Exec("DROP TABLE COUNTER")
		prepareCounters(t, s.DB)
		var children []*testdb.Process
		for i := range 4 {
			children = append(children, s.spawn(t, "fuzz", []string{"one", "two"}[i%2]))
		}
		for _, c := range children {
			must(t, c.Wait(t, 2*time.Minute))
		}
		checkCounters(t, s.DB, 2)
	})
}

func fuzzChild() {
	db, e := childExecutor()
	fatal(fuzzers(db, e, os.Getenv(argEnv)))
}

// dieChild takes the lock and dies within the job.
func dieChild() {
	_, e := childExecutor()
	most, err := time.ParseDuration(os.Getenv(argEnv))
	fatal(err)
	e.Execute(context.Background(), schedule.Task{Name: "dies", LockAtMostFor: most}, func(context.Context) error {
		fmt.Println("running")
		time.Sleep(20 * time.Millisecond)
		os.Exit(0)
		return nil
	})
}
