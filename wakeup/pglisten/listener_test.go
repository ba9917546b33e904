package pglisten_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
	"github.com/intlock/intlock/wakeup/pglisten"
)

var _ registry.WakeUp = (*pglisten.Listener)(nil)

// never is a pause between two polls that no test waits for: who gets a lock was
// woken.
const never = 24 * time.Hour

func database(t *testing.T) *testdb.DB {
	db := testdb.Open(t, vendor.Postgres)
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	return db
}

func listener(t *testing.T, dsn string) *pglisten.Listener {
	l, err := pglisten.New(dsn, pglisten.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// process is a registry that notifies, with a wake-up by way of dsn if it has one.
func process(t *testing.T, db *testdb.DB, l *pglisten.Listener) *registry.JdbcLockRegistry {
	repo, err := repository.New(t.Context(), db.DB, repository.WithNotify(), repository.WithAsyncRelease())
	if err != nil {
		t.Fatal(err)
	}
	opts := []registry.Option{registry.WithIdleBetweenTries(never)}
	if l != nil {
		opts = append(opts, registry.WithWakeUp(l))
	}
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

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for start := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 40*time.Second {
			t.Fatalf("%s: not within 40 s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, db *testdb.DB, query string, args ...any) (n int) {
	t.Helper()
	must(t, db.QueryRow(query, args...).Scan(&n))
	return n
}

const advisoryLocks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

// handOver has q wait for a lock that p holds, and p give it back once somebody
// is registered; it returns how long q then needed.
func handOver(t *testing.T, p, q *registry.JdbcLockRegistry, db *testdb.DB, key string, release func()) time.Duration {
	t.Helper()
	hold, err := p.Obtain(key).LockContext(t.Context(), registry.WithTTL(time.Minute))
	must(t, err)
	type result struct {
		at  time.Time
		err error
	}
	got := make(chan result, 1)
	go func() {
		hold, err := q.Obtain(key).LockContext(t.Context())
		at := time.Now()
		if err == nil {
			err = hold.Unlock(context.Background())
		}
		got <- result{at, err}
	}()
	eventually(t, "a waiter that says so", func() bool { return number(t, db, advisoryLocks) > 0 })
	time.Sleep(20 * time.Millisecond) // and has looked again since
	begin := time.Now()
	if release == nil {
		must(t, hold.Unlock(context.Background()))
	} else {
		release()
	}
	select {
	case r := <-got:
		must(t, r.err)
		return r.at.Sub(begin)
	case <-time.After(30 * time.Second):
		t.Fatal("the waiter was not woken")
		return 0
	}
}

func TestWakes(t *testing.T) {
	t.Parallel()
	db := database(t)
	p, q := process(t, db, nil), process(t, db, listener(t, db.DSN))
	var took []time.Duration
	for i := range 30 {
		took = append(took, handOver(t, p, q, db, fmt.Sprint("job-", i%3), nil))
	}
	slices.Sort(took)
	t.Logf("from the start of Unlock: p50 %v, longest %v", took[len(took)/2], took[len(took)-1])
}

// A release with a pool of one, and through a batch.
func TestWakesAll(t *testing.T) {
	t.Parallel()
	db := database(t)
	db.SetMaxOpenConns(1)
	p, q := process(t, db.Again(t), nil), process(t, db, listener(t, db.DSN))
	const n = 40
	var holds []*registry.Hold
	done := make(chan error, n)
	for i := range n {
		hold, err := p.Obtain(fmt.Sprint("key-", i)).LockContext(t.Context(), registry.WithTTL(time.Minute))
		must(t, err)
		holds = append(holds, hold)
		go func() {
			hold, err := q.Obtain(fmt.Sprint("key-", i)).LockContext(t.Context())
			if err == nil {
				err = hold.Unlock(context.Background())
			}
			done <- err
		}()
	}
	eventually(t, "waiters", func() bool { return number(t, db.Again(t), advisoryLocks) > 20 })
	time.Sleep(100 * time.Millisecond)
	for _, hold := range holds {
		go hold.Unlock(context.Background())
	}
	for range n {
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("a waiter was not woken")
		}
	}
}

// A key that nobody waits for is released without a notification.
func TestNotifiesOnlyWhoWaits(t *testing.T) {
	t.Parallel()
	db := database(t)
	notes := make(chan *pq.Notification, 1000)
	conn, err := pq.NewListenerConn(db.DSN, notes)
	must(t, err)
	defer conn.Close()
	if _, err := conn.Listen(vendor.WaitChannel); err != nil {
		t.Fatal(err)
	}
	p, q := process(t, db, nil), process(t, db, listener(t, db.DSN))
	for i := range 50 {
		hold, err := p.Obtain(fmt.Sprint("free-", i)).LockContext(t.Context())
		must(t, err)
		must(t, hold.Unlock(t.Context()))
	}
	must(t, conn.Ping())
	if n := len(notes); n != 0 {
		t.Errorf("%d notifications for locks that nobody waited for", n)
	}
	handOver(t, p, q, db, "contended", nil)
	eventually(t, "the notification", func() bool { return len(notes) > 0 })
	if n := <-notes; n.Extra != registry.PathFor("contended") {
		t.Errorf("notified of %q", n.Extra)
	}
}

func TestManyKeysFewLocks(t *testing.T) {
	t.Parallel()
	db := database(t)
	l := listener(t, db.DSN)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	woken := make(chan string, 5000)
	l.Start(ctx, func(path string) { woken <- path }, func() { close(stopped) })
	var done []func()
	for i := range 1000 {
		done = append(done, l.Await(fmt.Sprint("key-", i)))
	}
	seen := map[string]bool{}
	eventually(t, "everybody told once that he is known", func() bool {
		for len(woken) > 0 {
			seen[<-woken] = true
		}
		return seen["key-0"] && len(seen) >= 1000
	})
	if n := number(t, db, advisoryLocks); n == 0 || n > vendor.WaitBuckets {
		t.Errorf("%d advisory locks for 1000 keys, want at most %d", n, vendor.WaitBuckets)
	}
	for _, f := range done {
		f()
	}
	eventually(t, "no lock after all have left", func() bool { return number(t, db, advisoryLocks) == 0 })
	const backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query NOT LIKE '%pg_stat_activity%' AND query LIKE '%advisory%'"
	if n := number(t, db, backends); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	cancel()
	<-stopped
	eventually(t, "no connection after the end", func() bool { return number(t, db, backends) == 0 })
}

// Connections that are cut, a server that ends and comes back, a network that
// swallows everything: waiters are woken again afterwards.
func TestComesBack(t *testing.T) {
	t.Parallel()
	db := database(t)
	proxy := db.Proxy(t)
	l := listener(t, db.Through(t, proxy).DSN)
	p, q := process(t, db, nil), process(t, db, l)
	eventually(t, "the first connection", l.Alive)
	handOver(t, p, q, db, "before", nil)
	for _, c := range []struct {
		name string
		end  func()
	}{
		{"cut", proxy.Cut},
		{"reset", proxy.Reset},
		{"terminated", func() {
			number(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%advisory%' AND query NOT LIKE '%terminate%'")
		}},
		{"swallowed", proxy.BlackHole},
	} {
		c.end()
		eventually(t, c.name+": noticed", func() bool { return !l.Alive() })
		proxy.Heal()
		eventually(t, c.name+": a new connection", l.Alive)
		handOver(t, p, q, db, "after "+c.name, nil)
	}
}

// What was released while nobody listened is found when the connection is back.
func TestMissesNothing(t *testing.T) {
	t.Parallel()
	db := database(t)
	proxy := db.Proxy(t)
	l := listener(t, db.Through(t, proxy).DSN)
	p, q := process(t, db, nil), process(t, db, l)
	eventually(t, "the first connection", l.Alive)
	took := handOver(t, p, q, db, "job", nil)
	t.Log(took)
	hold, err := p.Obtain("missed").LockContext(t.Context(), registry.WithTTL(time.Hour))
	must(t, err)
	got := make(chan error, 1)
	go func() {
		hold, err := q.Obtain("missed").LockContext(t.Context())
		if err == nil {
			err = hold.Unlock(context.Background())
		}
		got <- err
	}()
	eventually(t, "a waiter", func() bool { return number(t, db, advisoryLocks) > 0 })
	proxy.Refuse()
	proxy.Cut()
	eventually(t, "the loss", func() bool { return !l.Alive() })
	must(t, hold.Unlock(t.Context()))
	proxy.Heal()
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the waiter was not woken by the new connection")
	}
}

// A server that is down, or a wrong password, keeps nobody from locking.
func TestNoServer(t *testing.T) {
	t.Parallel()
	db := database(t)
	l := listener(t, "postgres://nobody:s3cret@127.0.0.1:1/nothing?sslmode=disable")
	p, q := process(t, db, nil), process(t, db, l)
	for _, r := range []*registry.JdbcLockRegistry{p, q} {
		hold, err := r.Obtain("job").LockContext(t.Context())
		must(t, err)
		must(t, hold.Unlock(t.Context()))
	}
	if l.Alive() {
		t.Error("it says that it hears of releases")
	}
	begin := time.Now()
	must(t, q.Close(context.Background()))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, dsn := range []string{"postgres://app:s3cret@h:port/x", "password=s3cret port=x", "postgres://app:s3cret@h/x?sslmode=what"} {
		if _, err := pglisten.New(dsn); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want an error without the password", dsn, err)
		}
	}
	if _, err := pglisten.New(db.DSN, pglisten.WithLogger(nil)); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("no logger: %v", err)
	}
}
