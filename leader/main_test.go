package leader_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/leader"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

func TestMain(m *testing.M) { testdb.Main(m, map[string]func(){"elect": electChild}) }

var quiet = slog.New(slog.DiscardHandler)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func each(t *testing.T, f func(t *testing.T, db *testdb.DB)) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		must(t, schema.Apply(t.Context(), db, "INT_"))
		f(t, db)
	})
}

// locksOn is the registry of another process.
func locksOn(t *testing.T, db *testdb.DB, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.New(t.Context(), db, repository.WithTokens(), repository.WithHolder(t.Name()))
	must(t, err)
	locks, err := registry.New(repo, append([]registry.Option{registry.WithLogger(quiet), registry.WithIdleBetweenTries(20 * time.Millisecond)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

// runs starts an elector, and ends it with the test, or earlier by stop, which
// returns what Run did.
func runs(t *testing.T, e *leader.Elector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = func() error {
		cancel()
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(20 * time.Second):
			t.Error("Run does not end")
			return nil
		}
	}
	t.Cleanup(func() { stop() })
	return stop
}

func elector(t *testing.T, db *testdb.DB, c leader.Candidate, opts ...leader.Option) *leader.Elector {
	t.Helper()
	e, err := leader.New(locksOn(t, db), "role", c, append([]leader.Option{leader.WithLogger(quiet)}, opts...)...)
	must(t, err)
	return e
}

// The child: an elector in a process of its own, whose leader adds to a log that
// the guard fences.
const driverEnv, dsnEnv, ttlEnv, numberEnv, calmEnv = "LEADER_TEST_DRIVER", "LEADER_TEST_DSN", "LEADER_TEST_TTL", "LEADER_TEST_NUMBER", "LEADER_TEST_CALM"

// spawn starts a child. A calm one is not in a transaction when it is stopped: that
// would keep all others waiting.
func spawn(t *testing.T, db *testdb.DB, number string, ttl time.Duration, calm string) *testdb.Process {
	t.Helper()
	return testdb.Spawn(t, "elect", map[string]string{driverEnv: db.Driver, dsnEnv: db.DSN, ttlEnv: ttl.String(), numberEnv: number, calmEnv: calm})
}

// eventuallyNil repeats f while SQLite is busy.
func eventuallyNil(f func() error) error {
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if err := f(); err == nil || !strings.Contains(err.Error(), "locked") || time.Since(begin) > 10*time.Second {
			return err
		}
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func electChild() {
	ctx := context.Background()
	db, err := sql.Open(os.Getenv(driverEnv), os.Getenv(dsnEnv))
	fatal(err)
	repo, err := repository.New(ctx, db, repository.WithTokens(), repository.WithHolder("process "+os.Getenv(numberEnv)))
	fatal(err)
	locks, err := registry.New(repo, registry.WithIdleBetweenTries(50*time.Millisecond))
	fatal(err)
	guard, err := fencing.NewGuard(ctx, db)
	fatal(err)
	ttl, err := time.ParseDuration(os.Getenv(ttlEnv))
	fatal(err)
	e, err := leader.New(locks, "role", leader.Candidate{
		OnGranted: func(ctx context.Context) {
			hold, _ := registry.HoldFromContext(ctx)
			write := func() error {
				return eventuallyNil(func() error { return entry(context.Background(), db, guard, hold.Token()) })
			}
			if os.Getenv(calmEnv) != "" { // write once, and when it is too late
				fatal(write())
				fmt.Println("granted", hold.Token())
				<-ctx.Done()
				fmt.Println("late:", write())
				return
			}
			fmt.Println("granted", hold.Token())
			for ctx.Err() == nil {
				switch err := entry(ctx, db, guard, hold.Token()); {
				case err == nil || strings.Contains(err.Error(), "locked") || ctx.Err() != nil:
				default:
					fmt.Println("refused", err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
		OnRevoked: func() { fmt.Println("revoked") },
	}, leader.WithTTL(ttl))
	fatal(err)
	fmt.Println("ready")
	fatal(e.Run(ctx))
}

// entry adds a line to the log, in the order of the guard's lock.
func entry(ctx context.Context, db *sql.DB, guard *fencing.Guard, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := guard.Check(ctx, tx, "log", token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO LEADERS (N, TOKEN) SELECT COALESCE(MAX(N), 0) + 1, %d FROM LEADERS", token)); err != nil {
		return err
	}
	return tx.Commit()
}
