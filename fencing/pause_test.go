package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// A process that is stopped past the end of its lease and then goes on, as by a
// long garbage collection, a suspended laptop or a moved virtual machine.

const pauseTTL = time.Second

func TestMain(m *testing.M) { testdb.Main(m, map[string]func(){"pause": pauseChild}) }

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return v
}

// adder adds to a counter, under a lock, as both the child and its successor
// do: it reads, and later writes what it read plus one. Only one of the two
// defences, or none, stands between it and the successor's work.
type adder struct {
	db    *sql.DB
	guard *fencing.Guard
	key   string
}

func (p adder) read() (n int64, err error) {
	err = p.db.QueryRow(fmt.Sprintf("SELECT N FROM COUNTER WHERE ID = '%s'", p.key)).Scan(&n)
	return n, err
}

func (p adder) now() (n int64, err error) {
	err = eventually(func() error { n, err = p.read(); return err })
	return n, err
}

func (p adder) write(n int64, defence func(*sql.Tx) error) error {
	return eventually(func() error {
		tx, err := p.db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if defence != nil {
			if err := defence(tx); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(fmt.Sprintf("UPDATE COUNTER SET N = %d WHERE ID = '%s'", n, p.key)); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func (p adder) guarded(hold *registry.Hold) func(*sql.Tx) error {
	return func(tx *sql.Tx) error { return p.guard.Check(context.Background(), tx, p.key, hold.Token()) }
}

func (p adder) asserted(hold *registry.Hold) func(*sql.Tx) error {
	return func(tx *sql.Tx) error { return fencing.AssertHeld(context.Background(), tx, hold) }
}

// eventually repeats what SQLite, which has one writer, was too busy for.
func eventually(f func() error) error {
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil || !strings.Contains(err.Error(), "locked") || time.Since(start) > 20*time.Second {
			return err
		}
	}
}

// succeed takes the lock over and adds two, and returns what the counter is then.
func (p adder) succeed(ctx context.Context, locks *registry.JdbcLockRegistry) (n int64, err error) {
	err = locks.ExecuteLocked(ctx, p.key, func(ctx context.Context) error {
		hold, _ := registry.HoldFromContext(ctx)
		err := eventually(func() error { return p.guard.Advance(ctx, p.key, hold.Token()) })
		for range 2 {
			if err == nil {
				n, err = p.now()
			}
			if n++; err == nil {
				err = p.write(n, p.guarded(hold))
			}
		}
		return err
	})
	return n, err
}

// pauseChild takes the lock, reads, is stopped, and does what no program should:
// it goes on as if nothing had happened, and writes.
func pauseChild() {
	ctx := context.Background()
	db := must(sql.Open(os.Getenv("PAUSE_DRIVER"), os.Getenv("PAUSE_DSN")))
	repo := must(repository.New(ctx, db, repository.WithTokens()))
	locks := must(registry.New(repo, registry.WithTTL(pauseTTL), registry.WithOnLost(func(*registry.LostError) {})))
	p := adder{db, must(fencing.NewGuard(ctx, db)), os.Getenv("PAUSE_KEY")}
	for {
		hold := must(locks.Obtain(p.key).LockContext(ctx))
		must(0, eventually(func() error { return p.guard.Advance(ctx, p.key, hold.Token()) }))
		n := must(p.now())
		last := time.Now()
		fmt.Println("holding") // and from here on it may be stopped
		for {
			now := time.Now() // one look at the clock: a stop between two would go unseen
			if now.Sub(last) >= pauseTTL {
				break
			}
			last = now
			time.Sleep(5 * time.Millisecond)
		}
		held := hold.Held() // the first question after the pause
		byAssert := p.write(n+1, p.asserted(hold))
		byGuard := p.write(n+1, p.guarded(hold))
		var bare error
		if os.Getenv("PAUSE_CONTROL") != "" {
			bare = p.write(n+1, nil)
		} else {
			bare = errors.New("not tried")
		}
		unlock := hold.Unlock(ctx)
		fmt.Println("woke", held, errors.Is(byAssert, registry.ErrLockLost), errors.Is(byGuard, fencing.ErrStaleToken),
			bare == nil, errors.Is(unlock, registry.ErrLockLost))
		if byAssert != nil && !errors.Is(byAssert, registry.ErrLockLost) || byGuard != nil && !errors.Is(byGuard, fencing.ErrStaleToken) {
			fmt.Println("error:", byAssert, byGuard)
		}
	}
}

// TestPause stops 100 processes for 1.2 to 5 times the TTL, while a successor
// takes the lock and does its work. Each of them then hears that it does not
// hold the lock, and what it writes nevertheless is refused, by the guard as
// well as by AssertHeld. Those of the control that write without either undo
// the successor's work: this test would see it.
func TestPause(t *testing.T) {
	const parallel, rounds, controls = 10, 10, 2
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // it mostly waits
		place := func(db *testdb.DB) (*registry.JdbcLockRegistry, *fencing.Guard) {
			apply(t, db, "INT_")
			exec(t, db, "CREATE TABLE COUNTER (ID VARCHAR(20) PRIMARY KEY, N INTEGER NOT NULL)")
			repo := must(repository.New(t.Context(), db, repository.WithTokens()))
			locks := must(registry.New(repo, registry.WithIdleBetweenTries(20*time.Millisecond)))
			t.Cleanup(func() { locks.Close(context.Background()); repo.Close() })
			return locks, must(fencing.NewGuard(t.Context(), db))
		}
		locks, guard := place(db)

		var mu sync.Mutex // guards what follows
		pauses, stuck, controlled, undone := 0, 0, 0, 0
		var wg sync.WaitGroup
		for i := range parallel + controls {
			if i > 0 && db.Vendor == vendor.SQLite {
				// A process that is stopped in the middle of a commit keeps everybody
				// else from writing to its file.
				db = testdb.Open(t, vendor.SQLite)
				locks, guard = place(db)
			}
			db, locks, p := db, locks, adder{db.DB, guard, fmt.Sprint("account-", i)}
			exec(t, db, fmt.Sprintf("INSERT INTO COUNTER VALUES ('%s', 0)", p.key))
			wg.Go(func() {
				env := map[string]string{"PAUSE_DRIVER": db.Driver, "PAUSE_DSN": db.DSN, "PAUSE_KEY": p.key}
				control := i >= parallel
				if control {
					env["PAUSE_CONTROL"] = "yes"
				}
				child := testdb.Spawn(t, "pause", env)
				for range rounds {
					child.WaitLine(t, "holding", time.Minute)
					child.Stop(t)
					end := time.Now().Add(pauseTTL*12/10 + rand.N(pauseTTL*38/10))
					var n int64
					succeeded := make(chan error, 1)
					ctx, giveUp := context.WithCancel(t.Context())
					go func() {
						var err error
						n, err = p.succeed(ctx, locks)
						succeeded <- err
					}()
					var err error
					onTime := true
					select {
					case err = <-succeeded:
						time.Sleep(time.Until(end))
					case <-time.After(6 * pauseTTL):
						onTime = false
						giveUp()
					}
					child.Cont(t)
					said := child.WaitLine(t, "woke ", time.Minute)
					if !onTime {
						<-succeeded
					}
					giveUp()
					after, err2 := p.now()
					if err := errors.Join(err, err2); err != nil {
						t.Errorf("the successor: %v", err)
					}
					mu.Lock()
					switch {
					case !onTime: // SQLite, stopped in the middle of a commit: nobody else can write
						stuck++
					case control:
						controlled++
						if after != n {
							undone++
						}
					default:
						pauses++
						if after != n {
							t.Errorf("the counter is %d after a stale write, want %d", after, n)
						}
					}
					mu.Unlock()
					if want := fmt.Sprint(false, true, true, control, true); onTime && said != want {
						t.Errorf("held, refused by the lock, refused by the guard, written bare, told by Unlock: %s, want %s", said, want)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d pauses; without a defence %d of %d stale writes undid the successor's", pauses, undone, controlled)
		if undone == 0 {
			t.Error("no bare write did damage: the test does not see what it is for")
		}
		if most := map[string]int{vendor.SQLite: parallel}[db.Vendor]; stuck > most {
			t.Errorf("%d times the successor did not get the lock while the process was stopped, want at most %d", stuck, most)
		}
	})
}
