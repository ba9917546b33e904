package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(serviceEnv); config != "" {
		os.Exit(serviceMain(config)) // the test binary is the service too
	}
	testdb.Main(m, nil)
}

// loan runs the program on a database.
func loan(t *testing.T, db *testdb.DB, args ...string) (status int, s summary) {
	t.Helper()
	dsn := db.DSN
	if db.Driver == "sqlite" {
		dsn = db.Name
	}
	var out, errs bytes.Buffer
	status = loadMain(append([]string{"-db", dsn, "-json"}, args...), &out, &errs)
	if errs.Len() > 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return status, s
}

// 10,000 requests for 100 users, each ten times at once, to four processes: one
// loan for each user and class, and the repetitions are refused.
func TestOneLoanEach(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		status, s := loan(t, db)
		t.Logf("%+v", s)
		if status != 0 || !s.Right || s.Loans != 1000 || s.Several != 0 || s.Answers.Made != 1000 {
			t.Errorf("status %d, %+v", status, s)
		}
		if got := s.Answers.Made + s.Answers.Found + s.Answers.Refused; got != 10_000 || s.Answers.Refused == 0 {
			t.Errorf("%d answers, %+v", got, s)
		}
	})
}

// Without the lock some have several.
func TestDamage(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		status, s := loan(t, db, "-nolock", "-classes", "1", "-work", "100ms")
		if status != 1 || s.Right || s.Several == 0 {
			t.Errorf("status %d, %+v: want damage", status, s)
		}
		if n := tables(t, db); n != 0 {
			t.Errorf("%d tables are left", n)
		}
	})
}

// tables counts what the program may have left behind.
func tables(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.tables WHERE UPPER(table_name) LIKE 'LOAN%'"
	if db.Driver == "sqlite" {
		query = "SELECT COUNT(*) FROM sqlite_master WHERE UPPER(name) LIKE 'LOAN%'"
	}
	if db.Driver == "mysql" {
		query += " AND table_schema = DATABASE()"
	}
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCommandLine(t *testing.T) {
	var out, errs bytes.Buffer
	if status := loadMain([]string{"-h"}, &out, &errs); status != 0 || !strings.Contains(out.String(), "-nolock") {
		t.Errorf("help: status %d, %s", status, out.String())
	}
	for _, args := range [][]string{{"-users", "0"}, {"what"}, {"-x"}, {"-db", "postgres://user:canary@127.0.0.1:1/x"}} {
		errs.Reset()
		if status := loadMain(args, &out, &errs); status != 2 || errs.Len() == 0 || strings.Contains(errs.String(), "canary") {
			t.Errorf("%q: status %d, %s", args, status, errs.String())
		}
	}
	out.Reset()
	if status := loadMain([]string{"-users", "3", "-classes", "2", "-duplicates", "3", "-processes", "2"}, &out, &errs); status != 0 || !strings.Contains(out.String(), "RIGHT: 6 users and classes, 6 loans.") {
		t.Errorf("status %d: %s", status, out.String())
	}
}
