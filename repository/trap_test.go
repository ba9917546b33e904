package repository_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

func newRepository(t *testing.T, pool repository.Pool) *repository.DefaultLockRepository {
	t.Helper()
	repo, err := repository.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { repo.Close() })
	return repo
}

// TestOldTransaction: the connection is inside a transaction that began long
// ago. A lease counts from its statement all the same.
func TestOldTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		pool := db.Again(t)
		pool.SetMaxOpenConns(1)
		repo := newRepository(t, pool.DB)
		const ttl = time.Second
		exec(t, pool.DB, "BEGIN")
		time.Sleep(2 * ttl)
		req := aRequest("k")
		req.TTL = ttl
		if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
			t.Fatalf("Acquire = %+v, %v", out, err)
		}
		list, err := repo.List(t.Context())
		if err != nil || len(list) != 1 || list[0].Remaining < ttl/2 || list[0].Remaining > ttl {
			t.Errorf("List = %+v, %v, want about %v left", list, err, ttl)
		}
		if got, err := repo.Renew(t.Context(), []repository.Lease{req.Lease()}, ttl); err != nil || got[0].State != repository.LeaseStands {
			t.Errorf("Renew = %v, %v", got, err)
		}
		exec(t, pool.DB, "ROLLBACK")
	})
}

// TestManyKeysNoDeadlock: what deadlocks with an UPDATE followed by an INSERT
// does not with one statement.
func TestManyKeysNoDeadlock(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		mark := db.LogMark(t)
		var wg sync.WaitGroup
		for w := range 6 {
			repo := newRepository(t, db.DB)
			wg.Go(func() {
				for i := range 400 {
					req := aRequest(fmt.Sprint("key-", (i*(w+1))%50))
					out, err := repo.Acquire(context.Background(), req)
					if err == nil && out.Acquired {
						_, err = repo.Delete(context.Background(), req.Lease())
					}
					if err != nil && !(db.Vendor == vendor.SQLite && errors.Is(err, repository.ErrNotExecuted)) {
						t.Errorf("worker %d, %s: %v", w, req.Key, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, line := range mark.NewErrors(t) {
			t.Errorf("the server's log has: %s", line)
		}
	})
}

// TestBusySQLite: somebody writes for a long time. A reader is told at once
// who holds a key; who wants to write comes back when its context ends.
func TestBusySQLite(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	repo := newRepository(t, db.DB)
	if out, err := repo.Acquire(t.Context(), aRequest("held")); err != nil || !out.Acquired {
		t.Fatalf("Acquire = %+v, %v", out, err)
	}
	conn, err := db.Again(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if out, err := repo.Acquire(t.Context(), aRequest("held")); err != nil || out.Acquired || out.Holder == "" {
		t.Errorf("Acquire of a held key = %+v, %v, want held", out, err)
	}
	if took := time.Since(start); took > 100*time.Millisecond {
		t.Errorf("the answer \"held\" took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start = time.Now()
	if out, err := repo.Acquire(ctx, aRequest("free")); !errors.Is(err, repository.ErrTransient) {
		t.Errorf("Acquire of a free key = %+v, %v, want ErrTransient", out, err)
	}
	if took := time.Since(start); took > 600*time.Millisecond {
		t.Errorf("it came back after %v, its context had 200ms", took)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if out, err := repo.Acquire(t.Context(), aRequest("free")); err != nil || !out.Acquired {
		t.Errorf("Acquire afterwards = %+v, %v", out, err)
	}
}

// TestContextEndsBeforeScan: the statement has run, and the context ends
// before its answer is read. The outcome is unknown, it can be cleaned up, and
// no connection is lost.
func TestContextEndsBeforeScan(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MariaDB, vendor.SQLite} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
				t.Fatal(err)
			}
			var afterQuery func()
			pool := sql.OpenDB(hookedConnector{tracedConnector{db: db}, &afterQuery})
			defer pool.Close()
			pool.SetMaxOpenConns(1)
			repo := newRepository(t, pool)
			req := aRequest("k")
			ctx, cancel := context.WithCancel(t.Context())
			queries := 0
			afterQuery = func() {
				if queries++; name != vendor.SQLite || queries == 2 { // SQLite reads first
					cancel()
					time.Sleep(50 * time.Millisecond) // database/sql notices
				}
			}
			out, err := repo.Acquire(ctx, req)
			afterQuery = nil
			if err != nil && !errors.Is(err, repository.ErrTransient) || err == nil && !out.Acquired {
				t.Errorf("Acquire = %+v, %v, want ErrTransient", out, err)
			}
			for start := time.Now(); pool.Stats().InUse != 0; time.Sleep(time.Millisecond) {
				if time.Since(start) > 5*time.Second {
					t.Fatal("a connection is lost")
				}
			}
			if _, err := repo.Delete(t.Context(), req.Lease()); err != nil {
				t.Fatal(err)
			}
			if list, err := repo.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("List = %+v, %v, want nothing left", list, err)
			}
		})
	}
}

// hookedConnector is a traced driver that calls back when a query has returned
// and before its rows are read.
type hookedConnector struct {
	tracedConnector
	after *func()
}

func (c hookedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.tracedConnector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hookedConn{conn.(tracedConn), c.after}, nil
}

type hookedConn struct {
	tracedConn
	after *func()
}

func (c hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.tracedConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return hookedStmt{stmt.(tracedStmt), c.after}, nil
}

type hookedStmt struct {
	tracedStmt
	after *func()
}

func (s hookedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.tracedStmt.QueryContext(ctx, args)
	if *s.after != nil && err == nil {
		(*s.after)()
	}
	return rows, err
}
