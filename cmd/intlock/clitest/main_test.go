package clitest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/rogpeppe/go-internal/testscript"
)

// binary is the command, built for the tests.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "intlock-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "intlock")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = ".." // with what its own module says
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// urlOf is a test database as its user would name it.
func urlOf(db *testdb.DB) string {
	switch {
	case db.Driver == "sqlite":
		return "sqlite:" + db.Name
	case strings.HasPrefix(db.DSN, "postgres://"):
		return db.DSN
	}
	user, rest, _ := strings.Cut(db.DSN, "@tcp(")
	host, rest, _ := strings.Cut(rest, ")/")
	name, _, _ := strings.Cut(rest, "?")
	name2, password, _ := strings.Cut(user, ":")
	u := url.URL{Scheme: db.Vendor, User: url.User(name2), Host: host, Path: "/" + name}
	if password != "" {
		u.User = url.UserPassword(name2, password)
	}
	return u.String()
}

// TestScripts runs what is typed in testdata on every database.
func TestScripts(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		files, err := filepath.Glob("testdata/*.txtar")
		if err != nil || len(files) == 0 {
			t.Fatalf("%d scripts, %v", len(files), err)
		}
		for _, file := range files {
			own := testdb.Open(t, db.Vendor) // each has a database of its own
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(env *testscript.Env) error {
					env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
					env.Setenv("INTLOCK_DB", urlOf(own))
					env.Setenv("URL", urlOf(own))
					env.Setenv("VENDOR", own.Vendor)
					env.Setenv("TERM", "xterm")
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "until": until},
			})
		}
	})
}

// status runs a command and checks its exit status: status 75 intlock run ...
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// until repeats a command until it succeeds, or with ! until it fails.
func until(ts *testscript.TestScript, neg bool, args []string) {
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		if err := ts.Exec(args[0], args[1:]...); (err == nil) != neg {
			return
		}
	}
	ts.Fatalf("it does not come: %s", strings.Join(args, " "))
}
