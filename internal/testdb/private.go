//go:build unix

package testdb

import (
	"context"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb/dbserver"
	"github.com/intlock/intlock/internal/vendor"
)

// StopMode is a way to end a PrivateServer. None of them waits for clients.
type StopMode = dbserver.StopMode

const (
	Fast      = dbserver.Fast      // clean: SIGINT for Postgres, SIGTERM for MySQL and MariaDB
	Immediate = dbserver.Immediate // not clean: SIGQUIT for Postgres, SIGKILL for MySQL and MariaDB
	Kill      = dbserver.Kill      // kill -9 for the server and all its processes
)

// privateTimeout is more than the server allows itself to initialise, to start
// and to recover, on a loaded machine.
const privateTimeout = 3 * time.Minute

// PrivateServer is a database server for one test, which may break it. It is
// durable: what was committed survives every StopMode. Use it from the test's
// own goroutine.
type PrivateServer struct {
	server *server
	daemon *dbserver.Server
}

// Private starts a server of the vendor for this test alone. It ends with the
// test, or with the test's process, and leaves nothing behind.
//
// The server's programs must be on this machine, as `make test` sees to where
// it can; a server named by INTLOCK_TEST_<VENDOR>_DSN is somebody else's and
// never used. If they are absent, the test fails. It is skipped for vendors in
// INTLOCK_TEST_SKIP and INTLOCK_TEST_SKIP_PRIVATE, and for SQLite, which has
// no server: its counterpart is a child process that is killed (see Spawn).
func Private(t testing.TB, name string) *PrivateServer {
	t.Helper()
	skipIfIn(t, name, SkipEnv)
	if name == vendor.SQLite {
		t.Skip("SQLite has no server that could be stopped")
	}
	checkVendor(t, name)
	skipIfIn(t, name, SkipPrivateEnv)
	house, err := dbserver.NewHouse(true, func(format string, args ...any) { t.Logf("testdb: "+format, args...) })
	if err != nil {
		t.Fatalf("testdb: a private %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := house.Close(); err != nil {
			t.Errorf("testdb: end the private %s: %v", name, err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), privateTimeout)
	defer cancel()
	plan := dbserver.Find(ctx, name, house.Cache)
	if plan == nil {
		t.Fatalf("testdb: no program of a %s server on this machine, so no private one. "+
			"Install it, or run the tests with `make test` as root on Debian, which does (to leave such tests out: %s=%s)", name, SkipPrivateEnv, name)
	}
	daemon, err := house.Launch(ctx, plan)
	if err != nil {
		t.Fatalf("testdb: a private %s: %v", name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the private %s said at last:\n%s", name, daemon.LogTail(30))
		}
	})
	return &PrivateServer{
		server: &server{vendor: name, driver: daemon.Driver, dsn: daemon.DSN, log: daemon.Log, private: true},
		daemon: daemon,
	}
}

// Open creates a fresh, empty database on the server and opens a pool on it,
// as the package's Open does.
func (s *PrivateServer) Open(t testing.TB) *DB {
	t.Helper()
	return s.server.open(t)
}

// Stop ends the server and returns when all its processes are gone. It fails
// the test if the server does not run, if it does not end, or if a Fast end
// was not clean.
func (s *PrivateServer) Stop(t testing.TB, mode StopMode) {
	t.Helper()
	if err := s.daemon.Stop(mode); err != nil {
		t.Fatalf("testdb: %v", err)
	}
}

// Start starts the server after a Stop, on the same port and with the same
// data, and returns when it answers.
func (s *PrivateServer) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), privateTimeout)
	defer cancel()
	if err := s.daemon.Start(ctx); err != nil {
		t.Fatalf("testdb: %v", err)
	}
}

// Restart is Stop and Start.
func (s *PrivateServer) Restart(t testing.TB, mode StopMode) {
	t.Helper()
	s.Stop(t, mode)
	s.Start(t)
}
