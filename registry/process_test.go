package registry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

func TestMain(m *testing.M) {
	testdb.Main(m, map[string]func(){"count": countChild, "turns": turnsChild, "hold": holdChild, "kill": killChild})
}

// The children: each is a process of its own with a pool, a repository and a
// registry of its own on the database of the test.

const driverEnv, dsnEnv = "REGISTRY_TEST_DRIVER", "REGISTRY_TEST_DSN"

func spawn(t *testing.T, db *testdb.DB, child string, env ...string) *testdb.Process {
	t.Helper()
	vars := map[string]string{driverEnv: db.Driver, dsnEnv: db.DSN}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	return testdb.Spawn(t, child, vars)
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return v
}

func childRegistry(opts ...registry.Option) (*sql.DB, *registry.JdbcLockRegistry) {
	db := must(sql.Open(os.Getenv(driverEnv), os.Getenv(dsnEnv)))
	repo := must(repository.New(context.Background(), db))
	return db, must(registry.New(repo, opts...))
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

const countKeys, countGoroutines, countRounds = 3, 4, 12

// countChild adds to unprotected counters, each under its lock.
func countChild() {
	db, locks := childRegistry(registry.WithIdleBetweenTries(20 * time.Millisecond))
	var wg sync.WaitGroup
	for g := range countGoroutines {
		wg.Go(func() {
			for i := range countRounds {
				k := (g + i) % countKeys
				err := locks.ExecuteLocked(context.Background(), fmt.Sprint("counter-", k), func(context.Context) error {
					var n int
					if err := eventually(func() error {
						return db.QueryRow(fmt.Sprint("SELECT N FROM COUNTER WHERE ID = ", k)).Scan(&n)
					}); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
					return eventually(func() error {
						_, err := db.Exec(fmt.Sprintf("UPDATE COUNTER SET N = %d WHERE ID = %d", n+1, k))
						return err
					})
				})
				must(0, err)
			}
		})
	}
	wg.Wait()
	must(0, locks.Close(context.Background()))
	fmt.Println("done")
}

// TestExclusionAcrossProcesses: 8 processes with 4 goroutines each read, add
// one and write back; only the lock keeps the sums exact.
func TestExclusionAcrossProcesses(t *testing.T) {
	const processes = 8
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db, "CREATE TABLE COUNTER (ID INTEGER PRIMARY KEY, N INTEGER NOT NULL)",
			"INSERT INTO COUNTER VALUES (0, 0), (1, 0), (2, 0)")
		mark := db.LogMark(t)
		var children []*testdb.Process
		for range processes {
			children = append(children, spawn(t, db, "count"))
		}
		for _, c := range children {
			if err := c.Wait(t, 2*time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		for k := range countKeys {
			var n int
			if err := db.QueryRow(fmt.Sprint("SELECT N FROM COUNTER WHERE ID = ", k)).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if want := processes * countGoroutines * countRounds / countKeys; n != want {
				t.Errorf("counter %d is %d, want %d", k, n, want)
			}
		}
		checkRows(t, db, 0)
		silent(t, db, mark, processes*countGoroutines*countRounds/20)
	})
}

// turnsChild takes one lock again and again for the given time, and counts how
// often another process had it in between.
func turnsChild() {
	db, locks := childRegistry()
	stop := time.Now().Add(must(time.ParseDuration(os.Getenv("FOR"))))
	me, turns, grants := os.Getpid(), 0, 0
	for time.Now().Before(stop) {
		ctx, cancel := context.WithDeadline(context.Background(), stop)
		err := locks.ExecuteLocked(ctx, "hot", func(context.Context) error {
			grants++
			var last int
			if err := eventually(func() error { return db.QueryRow("SELECT PID FROM LASTONE").Scan(&last) }); err != nil {
				return err
			}
			if last != me {
				turns++
				if err := eventually(func() error {
					_, err := db.Exec(fmt.Sprint("UPDATE LASTONE SET PID = ", me))
					return err
				}); err != nil {
					return err
				}
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			must(0, err)
		}
	}
	must(0, locks.Close(context.Background()))
	fmt.Println("turns", turns, grants)
}

// TestNobodyIsShutOut: 4 processes contend for one key for 20 s, with the
// default settings and 1 ms of work. Each is served again and again.
func TestNobodyIsShutOut(t *testing.T) {
	duration := 20 * time.Second
	if testing.Short() {
		duration = 6 * time.Second
	}
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		prepare(t, db, "CREATE TABLE LASTONE (PID INTEGER NOT NULL)", "INSERT INTO LASTONE VALUES (0)")
		var children []*testdb.Process
		for range 4 {
			children = append(children, spawn(t, db, "turns", "FOR="+duration.String()))
		}
		least := int(duration / (5 * time.Second))
		for _, c := range children {
			fields := strings.Fields(c.WaitLine(t, "turns", duration+30*time.Second))
			turns, _ := strconv.Atoi(fields[0])
			t.Logf("process %d: %s turns, %s grants", c.Pid(), fields[0], fields[1])
			if turns < least {
				t.Errorf("a process had %d turns in %v, want at least %d", turns, duration, least)
			}
		}
		checkRows(t, db, 0)
	})
}

// holdChild takes a lock, says so, and holds it until it is killed.
func holdChild() {
	_, locks := childRegistry(registry.WithTTL(2 * time.Second))
	must(locks.Obtain("foo").LockContext(context.Background()))
	fmt.Println("held")
	select {}
}

// TestKilledHolder: the lock of a process that died is free when its TTL has
// passed, not before.
func TestKilledHolder(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		prepare(t, db)
		locks := newRegistry(t, db.DB)
		child := spawn(t, db, "hold")
		child.WaitLine(t, "held", 20*time.Second)
		granted := time.Now() // or a little later
		child.Kill()
		hold, err := locks.Obtain("foo").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(granted); took < time.Second || took > 2*time.Second+time.Second {
			t.Errorf("taken over after %v, the TTL was 2s", took)
		}
		if err := hold.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		checkRows(t, db, 0)
	})
}

// silent checks the server's log. MySQL may let two deadlock that wait for a
// row which is just being deleted, on a busy machine some times in a hundred
// rounds; one is told so and asks again.
func silent(t *testing.T, db *testdb.DB, mark *testdb.Mark, deadlocks int) {
	t.Helper()
	for _, line := range mark.NewErrors(t) {
		if db.Vendor == vendor.MySQL && strings.Contains(line, "deadlock detected") && deadlocks > 0 {
			deadlocks--
			continue
		}
		t.Errorf("the server's log has: %s", line)
	}
}

func prepare(t *testing.T, db *testdb.DB, statements ...string) {
	t.Helper()
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}

func newRegistry(t *testing.T, db repository.Pool, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := registry.New(repo, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		locks.Close(context.Background())
		repo.Close()
	})
	return locks
}

func checkRows(t *testing.T, db *testdb.DB, want int) {
	t.Helper()
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM INT_LOCK").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n == want {
		return
	}
	t.Errorf("INT_LOCK has %d rows, want %d", n, want)
	rows, err := db.Query("SELECT LOCK_NAME, HOLDER, CREATED_DATE, EXPIRED_AFTER FROM INT_LOCK")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, holder, created, expires sql.NullString
		if err := rows.Scan(&name, &holder, &created, &expires); err != nil {
			t.Fatal(err)
		}
		t.Logf("left: %s, held by %s, created %s, ends %s", name.String, holder.String, created.String, expires.String)
	}
}
