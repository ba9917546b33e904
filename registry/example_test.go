package registry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// From an empty database to a lock.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(2000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := schema.Apply(ctx, db, "INT_"); err != nil { // once, when the application is installed
		log.Fatal(err)
	}

	repo, err := repository.New(ctx, db, repository.WithRegion("billing"))
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()
	locks, err := registry.New(repo)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	err = locks.ExecuteLocked(ctx, "invoice-42", func(ctx context.Context) error {
		fmt.Println("nobody else works on invoice 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else works on invoice 42
	// <nil>
}

// inMemory makes the examples below short: a registry without a database.
func inMemory(table *repository.MemoryTable, name string) *registry.JdbcLockRegistry {
	repo, err := repository.NewMemory(table, repository.WithHolder(name))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := registry.New(repo)
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// A lock is a sync.Locker, for code that takes one.
func ExampleJdbcLock() {
	locks := inMemory(nil, "worker")
	defer locks.Close(context.Background())

	groups := map[string]int{}
	handle := func(group sync.Locker, name string) {
		group.Lock()
		defer group.Unlock()
		groups[name]++
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { handle(locks.Obtain("group-1"), "group-1") })
	}
	wg.Wait()
	fmt.Println(groups["group-1"])
	// Output: 10
}

// A hold is the handle to a lock; its context ends if the lock is lost.
func ExampleJdbcLock_LockContext() {
	locks := inMemory(nil, "worker")
	ctx := context.Background()
	defer locks.Close(ctx)

	hold, err := locks.Obtain("report").LockContext(ctx, registry.WithTTL(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	work := hold.Context(ctx) // for everything that must not outlive the lock
	fmt.Println("held:", hold.Held(), "- ended:", work.Err())
	if err := hold.Unlock(ctx); err != nil {
		log.Fatal(err) // ErrLockLost: what was done may clash with another's work
	}
	fmt.Println("held:", hold.Held(), "- ended:", context.Cause(work))
	// Output:
	// held: true - ended: <nil>
	// held: false - ended: registry: lock released
}

// Refuse at once, or after a while, and say why.
func ExampleJdbcLock_TryLockFor() {
	var table repository.MemoryTable
	ctx := context.Background()
	one, two := inMemory(&table, "machine 1"), inMemory(&table, "machine 2")
	defer one.Close(ctx)
	defer two.Close(ctx)

	hold, err := one.Obtain("report").TryLockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = two.Obtain("report").TryLockFor(ctx, 50*time.Millisecond)
	var refused *registry.NotAcquiredError
	if errors.As(err, &refused) {
		fmt.Println("held by", refused.Holder)
	}
	fmt.Println(errors.Is(err, registry.ErrNotAcquired), errors.Is(err, registry.ErrUnavailable))
	hold.Unlock(ctx)
	// Output:
	// held by machine 1
	// true false
}

// A lease that runs out under its work is lost, and everybody who asks is told.
func ExampleJdbcLockRegistry_ExecuteLocked() {
	var table repository.MemoryTable
	repo, err := repository.NewMemory(&table)
	if err != nil {
		log.Fatal(err)
	}
	told := make(chan *registry.LostError, 1)
	locks, err := registry.New(repo, registry.WithOnLost(func(err *registry.LostError) { told <- err }))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	err = locks.ExecuteLocked(ctx, "report", func(ctx context.Context) error {
		<-ctx.Done() // the work takes longer than the lease
		return ctx.Err()
	}, registry.WithTTL(50*time.Millisecond))
	fmt.Println(errors.Is(err, registry.ErrLockLost), errors.Is(err, context.Canceled))
	fmt.Println("lost:", (<-told).Key)
	// Output:
	// true true
	// lost: report
}

// Inside the lock, a call that takes it again joins it.
func ExampleHold_Context() {
	locks := inMemory(nil, "worker")
	ctx := context.Background()
	defer locks.Close(ctx)

	save := func(ctx context.Context) error {
		return locks.ExecuteLocked(ctx, "group-1", func(context.Context) error {
			fmt.Println("saved under the lock")
			return nil
		})
	}
	err := locks.ExecuteLocked(ctx, "group-1", func(ctx context.Context) error {
		fmt.Println("changed under the lock")
		return save(ctx)
	})
	fmt.Println(err)
	// Output:
	// changed under the lock
	// saved under the lock
	// <nil>
}

// A lease that is not renewed, and a warning before it ends: for work that
// wants to decide itself whether it may go on.
func ExampleWithExpiryWarning() {
	repo, err := repository.NewMemory(nil) // a database in real life, see the package example
	if err != nil {
		log.Fatal(err)
	}
	warned := make(chan string)
	locks, err := registry.New(repo,
		registry.WithTTL(400*time.Millisecond),
		registry.WithExpiryWarning(200*time.Millisecond, func(h *registry.Hold) { warned <- h.Key() }))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	hold, err := locks.Obtain("report").LockContext(ctx, registry.WithRenewal(false))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("runs out soon:", <-warned)
	fmt.Println("renewed by hand:", hold.Renew(ctx))
	fmt.Println("given back:", hold.Unlock(ctx))
	// Output:
	// runs out soon: report
	// renewed by hand: <nil>
	// given back: <nil>
}

// Rows of crashed processes are deleted once an hour, in whichever process has the
// lock for it.
func ExampleJdbcLockRegistry_DeleteExpired() {
	locks := inMemory(new(repository.MemoryTable), "janitor")
	ctx := context.Background()
	defer locks.Close(ctx)

	go func() {
		for range time.Tick(time.Hour) {
			err := locks.ExecuteLocked(ctx, "delete expired locks", func(ctx context.Context) error {
				deleted, err := locks.DeleteExpired(ctx)
				log.Printf("%d expired locks were deleted", deleted)
				return err
			})
			if errors.Is(err, registry.ErrClosed) {
				return
			}
			if err != nil {
				log.Print(err) // the next one makes up for it
			}
		}
	}()
}
