package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// probeTimeout is short: a server that is really there is on this machine or
// close to it, and an absent one should be named at once.
const probeTimeout = 5 * time.Second

// DSNEnv names the variable that holds a vendor's DSN.
func DSNEnv(name string) string { return "INTLOCK_TEST_" + strings.ToUpper(name) + "_DSN" }

// LogEnv names the variable that holds the path of a vendor's error log.
func LogEnv(name string) string { return "INTLOCK_TEST_" + strings.ToUpper(name) + "_LOG" }

// server is one that answered and said what it is.
type server struct {
	vendor string
	driver string
	dsn    string
	log    string // path of its error log, "" if unknown

	private bool // it ends with the test, and its databases with it
}

// finding is a server, or the reason why there is none.
type finding struct {
	server  *server
	problem string
}

// servers asks once per process: the answer cannot change, and a dead DSN
// would otherwise cost its timeout in every test.
var servers = sync.OnceValue(func() map[string]finding { return probe(os.Getenv) })

var examples = map[string]string{
	vendor.Postgres: "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable",
	vendor.MySQL:    "root@tcp(127.0.0.1:3306)/",
	vendor.MariaDB:  "root@tcp(127.0.0.1:3306)/",
}

// probe asks the server behind each DSN what it is. What it says counts, not
// the variable's name: a MariaDB behind the MySQL variable is MariaDB, and
// MySQL is then absent.
func probe(getenv func(string) string) map[string]finding {
	names := []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB}
	answers := make([]finding, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		dsn := getenv(DSNEnv(name))
		if dsn == "" {
			answers[i].problem = absent(name, DSNEnv(name)+" is not set")
			continue
		}
		wg.Go(func() {
			s, err := ask(name, dsn)
			if err != nil {
				answers[i].problem = absent(name, "the server in "+DSNEnv(name)+" does not answer: "+redact(dsn, err))
				return
			}
			s.log = getenv(LogEnv(name))
			answers[i].server = s
		})
	}
	wg.Wait()

	found := make(map[string]finding, len(names))
	for i, name := range names { // the variable's own vendor first
		if s := answers[i].server; s == nil || s.vendor == name {
			found[name] = answers[i]
		}
	}
	for i, name := range names {
		s := answers[i].server
		if s == nil || s.vendor == name {
			continue
		}
		found[name] = finding{problem: absent(name, DSNEnv(name)+" is answered by "+s.vendor)}
		if found[s.vendor].server == nil {
			found[s.vendor] = finding{server: s}
		}
	}
	return found
}

func absent(name, why string) string {
	return fmt.Sprintf("no %s: %s. Run the tests with `make test`, which starts one, or set %s to one of yours, such as %s (to leave %s out: %s=%s)",
		name, why, DSNEnv(name), examples[name], name, SkipEnv, name)
}

func ask(name, dsn string) (*server, error) {
	if err := checkDSN(name, dsn); err != nil {
		return nil, err
	}
	s := &server{driver: driverOf(name), dsn: dsn}
	db, err := sql.Open(s.driver, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	s.vendor, err = vendor.Detect(ctx, db)
	return s, err
}

func driverOf(name string) string {
	switch name {
	case vendor.Postgres:
		return "postgres"
	case vendor.SQLite:
		return "sqlite"
	}
	return "mysql" // serves MariaDB too
}

// open creates a database that ends with the test, and opens a pool on it.
func (s *server) open(t testing.TB) *DB {
	t.Helper()
	db := &DB{Vendor: s.vendor, Driver: s.driver, Name: randomName(), server: s}
	db.DSN = s.withDatabase(db.Name)
	s.create(t, db.Name)
	if !s.private {
		t.Cleanup(func() { s.drop(t, db.Name) })
	}
	return open(t, db)
}

// create makes the database. Its name is ours, so it needs no quoting.
func (s *server) create(t testing.TB, name string) {
	t.Helper()
	if err := s.admin(func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	}); err != nil {
		t.Fatalf("testdb: create a database on %s: %s", s.vendor, redact(s.dsn, err))
	}
}

// drop removes the database and whoever is still connected to it: a test that
// left a transaction open (a stopped child process, say) must not hang the
// clean-up.
func (s *server) drop(t testing.TB, name string) {
	t.Helper()
	if err := s.admin(func(ctx context.Context, db *sql.DB) error {
		if s.vendor == vendor.Postgres {
			_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
			return err
		}
		if err := kick(ctx, db, name); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name)
		return err
	}); err != nil {
		t.Errorf("testdb: drop the database %s on %s: %s", name, s.vendor, redact(s.dsn, err))
	}
}

// kick ends the connections to a database; MySQL's DROP DATABASE waits for
// their transactions, by default for a year.
func kick(ctx context.Context, db *sql.DB, name string) error {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ?", name)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		// One that ended by itself in the meantime is an error here, and no
		// reason to stop.
		_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	}
	return nil
}

// admin opens a connection for one step and closes it again: a pool kept for
// the whole process would show up in tests that look for leaked goroutines.
func (s *server) admin(step func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	db, err := sql.Open(s.driver, s.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return step(ctx, db)
}
