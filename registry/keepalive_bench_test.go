//go:build unix

package registry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// benchWindow has two renewals of each lease.
const benchWindow = 25 * time.Second

// BenchmarkKeepAlive shows what keeping 10,000 leases of 30 s costs one process:
// the share of one core, the statements, the memory, beside what each may be.
// On SQLite the database is part of the process.
func BenchmarkKeepAlive(b *testing.B) {
	for _, name := range testdb.Vendors() {
		b.Run(name, func(b *testing.B) { benchKeepAlive(b, testdb.Open(b, name)) })
	}
}

func benchKeepAlive(b *testing.B, db *testdb.DB) {
	ctx := context.Background()
	if err := schema.Apply(ctx, db, "INT_"); err != nil {
		b.Fatal(err)
	}
	var statements atomic.Int64
	pool := sql.OpenDB(countedConnector{db, &statements})
	defer pool.Close()
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	repo, err := repository.New(ctx, pool)
	if err != nil {
		b.Fatal(err)
	}
	defer repo.Close()
	holds := make([]*registry.Hold, costLeases)
	before := heapInUse()
	locks, err := registry.New(repo, registry.WithTTL(costTTL), registry.WithOnLost(func(err *registry.LostError) {
		if err.Reason != registry.LossClosed {
			b.Error(err)
		}
	}))
	if err != nil {
		b.Fatal(err)
	}
	acquireAll(b, locks, holds)
	time.Sleep(costTTL / 3) // the time that acquiring took may be forgotten

	updates, hot := hotUpdates(b, db)
	b.ResetTimer()
	for range b.N {
		statements.Store(0)
		start, used := time.Now(), processorTime(b)
		time.Sleep(benchWindow)
		took := time.Since(start).Seconds()
		core := (processorTime(b) - used).Seconds() / took * 100
		perSecond := float64(statements.Load()) / took
		perLease := (heapInUse() - before) / costLeases
		b.ReportMetric(core, "core-%")
		b.ReportMetric(perSecond, "stmts/s")
		b.ReportMetric(perLease, "B/lease")
		b.Logf("%-9s core %4.1f %% (limit %v)   statements %4.1f/s (limit %v)   memory %4.0f B a lease (limit %v)",
			db.Vendor, core, maxCorePercent, perSecond, maxStatements, perLease, maxLeaseBytes)
	}
	b.StopTimer()
	for _, h := range holds {
		if !h.Held() {
			b.Fatalf("%s was lost", h.Key())
		}
	}
	if db.Vendor == vendor.Postgres {
		time.Sleep(2 * time.Second) // the statistics lag
		allUpdates, allHot := hotUpdates(b, db)
		b.ReportMetric(float64(allHot-hot)/float64(allUpdates-updates)*100, "HOT-%")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel() // the database goes away anyway
	locks.Close(ended)
}

// acquireAll acquires all holds, several at once.
func acquireAll(b *testing.B, locks *registry.JdbcLockRegistry, holds []*registry.Hold) {
	start := time.Now()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(holds)); i = next.Add(1) - 1 {
				hold, err := locks.Obtain(fmt.Sprint("order-", i)).LockContext(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				holds[i] = hold
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.Logf("%d leases acquired in %v", len(holds), time.Since(start).Round(100*time.Millisecond))
}

// processorTime is what this process has used of all cores.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hotUpdates counts the updates of the lock table, on Postgres, and those that
// did not touch an index.
func hotUpdates(b *testing.B, db *testdb.DB) (all, hot int64) {
	if db.Vendor == vendor.Postgres {
		err := db.QueryRow("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'int_lock'").Scan(&all, &hot)
		if err != nil {
			b.Fatal(err)
		}
	}
	return all, hot
}

// countedConnector opens connections that count the statements they execute.
type countedConnector struct {
	db *testdb.DB
	n  *atomic.Int64
}

func (c countedConnector) Driver() driver.Driver { return c.db.DB.Driver() }

func (c countedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.db.DB.Driver().Open(c.db.DSN)
	return countedConn{conn, c.n}, err
}

type countedConn struct {
	driver.Conn
	n *atomic.Int64
}

func (c countedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return countedStmt{stmt, c.n}, err
}

func (c countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

type countedStmt struct {
	driver.Stmt
	n *atomic.Int64
}

func (s countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.n.Add(1)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.n.Add(1)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
