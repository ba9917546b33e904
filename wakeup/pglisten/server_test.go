package pglisten_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schema"
)

// A row that somebody else deletes, with plain SQL, wakes the waiter by way of
// the trigger; without the trigger nothing would.
func TestTriggerWakes(t *testing.T) {
	t.Parallel()
	db := database(t)
	must(t, schema.ApplyNotify(t.Context(), db, "INT_"))
	p, q := process(t, db, nil), process(t, db, listener(t, db.DSN))
	for i := range 5 {
		key := fmt.Sprint("job-", i)
		handOver(t, p, q, db, key, func() {
			result, err := db.Exec("DELETE FROM INT_LOCK WHERE LOCK_KEY = $1", registry.PathFor(key))
			must(t, err)
			if n, err := result.RowsAffected(); err != nil || n != 1 {
				t.Fatalf("%d rows deleted, %v", n, err)
			}
		})
	}
}

// The server ends, in whichever way, and comes back on the same address.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := testdb.Private(t, vendor.Postgres)
	db := server.Open(t)
	must(t, schema.Apply(t.Context(), db, "INT_"))
	l := listener(t, db.DSN)
	p, q := process(t, db, nil), process(t, db.Again(t), l)
	eventually(t, "the first connection", l.Alive)
	for _, mode := range []testdb.StopMode{testdb.Fast, testdb.Kill} {
		server.Stop(t, mode)
		eventually(t, "the loss", func() bool { return !l.Alive() })
		server.Start(t)
		eventually(t, "a new connection", l.Alive)
		handOver(t, p, q, db, fmt.Sprint("after-", mode), nil)
	}
}

// mine counts the goroutines that run this package's code, or wait in the
// driver for one of its connections.
func mine() (n int, stacks string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "wakeup/pglisten.") || strings.Contains(g, "ListenerConn") {
			n++
			stacks += g + "\n\n"
		}
	}
	return n, stacks
}

// The end leaves no goroutine, however the connection is at that moment. Not
// parallel: the other tests have listeners too.
func TestEndLeavesNothing(t *testing.T) {
	db := database(t)
	for _, c := range []struct {
		name  string
		spoil func(*testdb.Proxy)
	}{
		{"connected", func(*testdb.Proxy) {}},
		{"refused", func(p *testdb.Proxy) { p.Refuse(); p.Cut() }},
		{"swallowed", (*testdb.Proxy).BlackHole},
	} {
		proxy := db.Proxy(t)
		l := listener(t, db.Through(t, proxy).DSN)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		l.Start(ctx, func(string) {}, func() { close(stopped) })
		eventually(t, c.name+": a connection", l.Alive)
		done := l.Await("job")
		eventually(t, c.name+": registered", func() bool { return number(t, db, advisoryLocks) == 1 })
		c.spoil(proxy)
		done()
		cancel()
		select {
		case <-stopped:
		case <-time.After(40 * time.Second):
			t.Fatalf("%s: it does not end", c.name)
		}
		eventually(t, c.name+": no goroutine", func() bool { n, _ := mine(); return n == 0 })
		proxy.Heal()
		proxy.Cut() // the server has not heard of the end of a connection that was swallowed
		eventually(t, c.name+": no lock", func() bool { return number(t, db, advisoryLocks) == 0 })
	}
	if n, stacks := mine(); n != 0 {
		t.Errorf("%d goroutines are left:\n%s", n, stacks)
	}
}
