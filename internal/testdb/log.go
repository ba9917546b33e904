package testdb

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/vendor"
)

// Mark is a place in a server's error log.
type Mark struct {
	db     *DB
	offset int64
}

// LogMark remembers where the server's error log ends now.
func (d *DB) LogMark(t testing.TB) *Mark {
	t.Helper()
	m := &Mark{db: d}
	if d.server == nil || d.server.log == "" {
		return m
	}
	info, err := os.Stat(d.server.log)
	if err != nil {
		t.Fatalf("testdb: the log of %s, named by %s: %v", d.Vendor, LogEnv(d.Vendor), err)
	}
	m.offset = info.Size()
	return m
}

// NewErrors lists what the server wrote since the mark at level ERROR or
// worse about this database, one entry per event, with the statement where
// the log gives it.
//
// Postgres logs every failed statement. MySQL and MariaDB log none of them;
// there the list has the server's own errors and, since `make test` switches
// innodb_print_all_deadlocks on, the deadlocks.
// SQLite has no log. If the log's path is not known, the test's log says so
// and the list is empty.
func (m *Mark) NewErrors(t testing.TB) []string {
	t.Helper()
	if m.db.server == nil {
		return nil
	}
	if m.db.server.log == "" {
		t.Logf("testdb: the error log of %s is not known (%s is not set), so nothing is claimed about it", m.db.Vendor, LogEnv(m.db.Vendor))
		return nil
	}
	file, err := os.Open(m.db.server.log)
	if err != nil {
		t.Fatalf("testdb: read the log of %s: %v", m.db.Vendor, err)
	}
	defer file.Close()
	if _, err := file.Seek(m.offset, io.SeekStart); err != nil {
		t.Fatalf("testdb: read the log of %s: %v", m.db.Vendor, err)
	}
	var lines []string
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	if err := scan.Err(); err != nil {
		t.Fatalf("testdb: read the log of %s: %v", m.db.Vendor, err)
	}
	if m.db.Vendor == vendor.Postgres {
		return postgresErrors(lines, m.db.Name)
	}
	return mysqlErrors(lines, m.db.Name)
}

// postgresLine is a line under the prefix that serve sets, '%m [%p] %q%d ':
// after the process comes the database, if it is a session's line.
var postgresLine = regexp.MustCompile(`\[(\d+)\] (?:(\S+) )?(ERROR|FATAL|PANIC|STATEMENT):  (.*)`)

func postgresErrors(lines []string, database string) []string {
	var found []string
	last := map[string]int{} // process -> its newest entry in found
	for _, line := range lines {
		part := postgresLine.FindStringSubmatch(line)
		if part == nil {
			continue
		}
		process, of, level := part[1], part[2], part[3]
		switch {
		case level == "STATEMENT":
			if i, ok := last[process]; ok {
				found[i] += " | " + part[4]
				delete(last, process)
			}
		case of == database, level == "PANIC": // a panic ends everybody's sessions
			last[process] = len(found)
			found = append(found, line)
		}
	}
	return found
}

var (
	// logged is the start of an entry: MySQL writes an ISO time in one word,
	// MariaDB a date and a time.
	logged = regexp.MustCompile(`^\d{4}-\d\d-\d\d[T ] ?\d`)
	// recordDump is a row's bytes, which nobody reads in a test's log.
	recordDump   = regexp.MustCompile(`^ \d+: len |^Record lock, |^$`)
	ownDatabases = regexp.MustCompile(`\bintlock_[0-9a-f]{16}\b`)
)

// mysqlErrors groups the lines into entries, because a deadlock names the
// tables in the lines that follow it, and leaves out an entry that speaks of
// another test's database: test binaries share the server.
func mysqlErrors(lines []string, database string) []string {
	var found []string
	var deadlock []string // the lines of one report, over several entries in MySQL
	flush := func() {
		if len(deadlock) > 0 && concerns(strings.Join(deadlock, "\n"), database) {
			found = append(found, strings.Join(deadlock, "\n"))
		}
		deadlock = nil
	}
	for _, line := range lines {
		starts := logged.MatchString(line)
		switch {
		case strings.Contains(line, "eadlock") && strings.Contains(line, "detected"):
			flush()
			deadlock = []string{line}
		case starts && strings.Contains(line, "[ERROR]"):
			flush()
			if concerns(line, database) {
				found = append(found, line)
			}
		case starts && !strings.Contains(line, "InnoDB"):
			flush()
		case deadlock != nil && !recordDump.MatchString(line):
			deadlock = append(deadlock, line)
		}
	}
	flush()
	return found
}

// concerns is true for this database and for entries that name none.
func concerns(entry, database string) bool {
	names := ownDatabases.FindAllString(entry, -1)
	for _, name := range names {
		if name == database {
			return true
		}
	}
	return len(names) == 0
}
