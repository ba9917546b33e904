// Package testdb gives a test a real database: a fresh, empty one of its own
// for every call, on each vendor the module supports.
//
// Where the servers are is told by environment variables, which `make test`
// sets after it has started throw-away servers (see package serve below this
// one), and which a developer may set to servers of their own:
//
//	INTLOCK_TEST_POSTGRES_DSN  postgres://user@host:port/db?sslmode=disable
//	INTLOCK_TEST_MYSQL_DSN     root@tcp(host:port)/
//	INTLOCK_TEST_MARIADB_DSN   root@tcp(host:port)/
//	INTLOCK_TEST_<VENDOR>_LOG  the server's error log, if it can be read here
//	INTLOCK_TEST_SKIP          vendors to leave out, such as mysql,mariadb
//	INTLOCK_TEST_SKIP_PRIVATE  vendors to leave out where a test needs a server of its own
//
// A server that is absent fails the test. Only the last two leave a vendor
// out, and then the test says so.
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

const (
	// SkipEnv names the variable that lists the vendors to leave out.
	SkipEnv = "INTLOCK_TEST_SKIP"
	// SkipPrivateEnv names the variable that lists the vendors to leave out in
	// tests that call Private.
	SkipPrivateEnv = "INTLOCK_TEST_SKIP_PRIVATE"
)

// adminTimeout bounds creating and dropping a database. It is long because a
// loaded machine may run several test binaries at once.
const adminTimeout = 30 * time.Second

// Vendors lists the supported databases in the order tests run them.
func Vendors() []string { return vendor.All() }

// DB is one pool on a database that belongs to one test.
type DB struct {
	*sql.DB
	Vendor string // one of Vendors()
	Driver string // for sql.Open, as DSN is: a child process can open the same database
	DSN    string
	Name   string // the database's name, for SQLite its file

	server *server // nil for SQLite
}

// Each runs f once per vendor, as a subtest of the vendor's name, on a fresh
// database.
func Each(t *testing.T, f func(t *testing.T, db *DB)) {
	t.Helper()
	for _, name := range Vendors() {
		t.Run(name, func(t *testing.T) { f(t, Open(t, name)) })
	}
}

// Open creates a fresh, empty database on the vendor's server and opens a
// pool on it; both end with the test. It skips the test if the vendor is in
// INTLOCK_TEST_SKIP, and fails it if the vendor has no server.
func Open(t testing.TB, name string) *DB {
	t.Helper()
	skipIfIn(t, name, SkipEnv)
	if name == vendor.SQLite {
		file := filepath.Join(t.TempDir(), "intlock.db")
		return open(t, &DB{Vendor: name, Driver: "sqlite", DSN: sqliteDSN(file), Name: file})
	}
	checkVendor(t, name)
	found := servers()[name]
	if found.server == nil {
		t.Fatalf("testdb: %s", found.problem)
	}
	return found.server.open(t)
}

// Again opens a second pool on the same database. It is closed when t ends.
func (d *DB) Again(t testing.TB) *DB {
	t.Helper()
	second := *d
	return open(t, &second)
}

// With opens a second pool on the same database with parameters added to its
// DSN, in the driver's own spelling: {"TimeZone": "America/New_York"} for
// Postgres, {"clientFoundRows": "true"} for MySQL and MariaDB,
// {"_pragma": "busy_timeout(0)"} for SQLite. A parameter that was there
// before is replaced.
func (d *DB) With(t testing.TB, params map[string]string) *DB {
	t.Helper()
	dsn, err := withParams(d.Vendor, d.DSN, params)
	if err != nil {
		t.Fatalf("testdb: add parameters to the %s DSN: %v", d.Vendor, err)
	}
	second := *d
	second.DSN = dsn
	return open(t, &second)
}

// open fills in the pool of d, which has everything else, and proves that it
// answers: a wrong parameter should fail here and not in the test's middle.
func open(t testing.TB, d *DB) *DB {
	t.Helper()
	pool, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatalf("testdb: open %s: %v", d.Vendor, redact(d.DSN, err))
	}
	t.Cleanup(func() { _ = pool.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := pool.PingContext(ctx); err != nil {
		t.Fatalf("testdb: connect to %s: %v", d.Vendor, redact(d.DSN, err))
	}
	d.DB = pool
	return d
}

// skipIfIn skips the test if the variable lists the vendor.
func skipIfIn(t testing.TB, name, variable string) {
	t.Helper()
	skipped := list(variable)
	for _, s := range skipped {
		// A misspelt name would test what should be left out, or worse, make
		// somebody believe that something was left out on purpose.
		if !slices.Contains(Vendors(), s) {
			t.Fatalf("testdb: %s names %q, which is none of %s", variable, s, strings.Join(Vendors(), ", "))
		}
	}
	if slices.Contains(skipped, name) {
		t.Skipf("%s left out by %s", name, variable)
	}
}

func checkVendor(t testing.TB, name string) {
	t.Helper()
	if !slices.Contains(Vendors(), name) {
		t.Fatalf("testdb: %q is no vendor: want one of %s", name, strings.Join(Vendors(), ", "))
	}
}

// Skipped lists what INTLOCK_TEST_SKIP leaves out.
func Skipped() []string { return list(SkipEnv) }

func list(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}

func randomName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, see its documentation
	return "intlock_" + hex.EncodeToString(b[:])
}

// redact takes the DSN out of a driver's message, since it may hold a
// password. The drivers of today do not print it; url.Parse does.
func redact(dsn string, err error) string {
	return strings.ReplaceAll(fmt.Sprint(err), dsn, "(the DSN)")
}
