//go:build unix

package sqlitewatch_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
	"github.com/intlock/intlock/wakeup/sqlitewatch"
)

var _ registry.WakeUp = (*sqlitewatch.Watcher)(nil)

func TestMain(m *testing.M) { testdb.Main(m, map[string]func(){"holder": holder}) }

// never is a pause between two polls that no test waits for.
const never = 24 * time.Hour

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// holder takes and gives back a lock when it is told to, in a process of its own.
func holder() {
	db, err := sql.Open(os.Getenv("HOLDER_DRIVER"), os.Getenv("HOLDER_DSN"))
	check(err)
	repo, err := repository.New(context.Background(), db)
	check(err)
	locks, err := registry.New(repo, registry.WithTTL(time.Minute))
	check(err)
	for {
		hold, err := locks.Obtain("job").LockContext(context.Background())
		check(err)
		fmt.Println("holding")
		time.Sleep(60 * time.Millisecond)
		at := time.Now().UnixNano()
		check(hold.Unlock(context.Background()))
		fmt.Println("gave", at)
		time.Sleep(100 * time.Millisecond)
	}
}

func file(t *testing.T) *testdb.DB {
	db := testdb.Open(t, vendor.SQLite)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	return db
}

func watched(t *testing.T, db *testdb.DB, opts ...registry.Option) *registry.JdbcLockRegistry {
	repo, err := repository.New(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	opts = append([]registry.Option{registry.WithIdleBetweenTries(never), registry.WithWakeUp(sqlitewatch.New(db.Again(t).DB))}, opts...)
	locks, err := registry.New(repo, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
		repo.Close()
	})
	return locks
}

// A lock that another process gives back is had at once.
func TestWakesOtherProcess(t *testing.T) {
	db := file(t)
	locks := watched(t, db)
	child := testdb.Spawn(t, "holder", map[string]string{"HOLDER_DRIVER": db.Driver, "HOLDER_DSN": db.DSN})
	var took []time.Duration
	for range 30 {
		child.WaitLine(t, "holding", time.Minute)
		hold, err := locks.Obtain("job").TryLockFor(t.Context(), 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixNano()
		var at int64
		if _, err := fmt.Sscan(child.WaitLine(t, "gave ", time.Minute), &at); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Duration(now-at))
		if err := hold.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	t.Logf("from the start of Unlock: p50 %v, longest %v", took[len(took)/2], took[len(took)-1])
}

// Nobody waits: nothing is read, and no connection kept.
func TestRestsWhenNobodyWaits(t *testing.T) {
	db := file(t)
	pool := db.Again(t)
	w := sqlitewatch.New(pool.DB)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	woken := make(chan string, 1000)
	w.Start(ctx, func(path string) { woken <- path }, func() { close(stopped) })
	if !w.Alive() || pool.Stats().InUse != 0 {
		t.Errorf("at rest: alive %v, %d connections", w.Alive(), pool.Stats().InUse)
	}
	done := w.Await("key")
	first := <-woken
	if first != "" && first != "key" || !w.Alive() || pool.Stats().InUse != 1 {
		t.Errorf("woken with %q, alive %v, %d connections", first, w.Alive(), pool.Stats().InUse)
	}
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	time.Sleep(time.Second)
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	t.Logf("a second of waiting costs %v of a processor", time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()))
	if n := len(woken); n != 0 {
		t.Errorf("woken %d times though nobody has committed", n)
	}
	if _, err := db.Exec("CREATE TABLE other (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	if path := <-woken; path != "" {
		t.Errorf("woken with %q, want all", path)
	}
	done()
	for start := time.Now(); pool.Stats().InUse != 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("it goes on though nobody waits")
		}
	}
	again := w.Await("key") // and begins again
	<-woken
	again()
	cancel()
	<-stopped
}

// A file that cannot be read is no reason not to lock: waiters poll.
func TestBrokenWatch(t *testing.T) {
	db := file(t)
	closed := db.Again(t)
	closed.Close()
	w := sqlitewatch.New(closed.DB)
	locks := watched(t, db, registry.WithWakeUp(w), registry.WithIdleBetweenTries(20*time.Millisecond))
	other := watched(t, db)
	hold, err := other.Obtain("job").LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		hold, err := locks.Obtain("job").LockContext(t.Context())
		if err == nil {
			err = hold.Unlock(context.Background())
		}
		got <- err
	}()
	for start := time.Now(); w.Alive(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("it says that it sees commits")
		}
	}
	if err := hold.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}
