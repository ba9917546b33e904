//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/schema"
)

// program is the example, built once for all tests.
var program string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "aggregator-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(folder, "aggregator")
	args := []string{"build", "-o", program}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the example: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// small is a run of about a second.
var small = []string{"-groups", "40", "-messages", "400", "-seed", "1"}

// endless is a run that does not end by itself within a test's time.
var endless = []string{"-groups", "20000", "-messages", "200000", "-work", "30ms"}

type ended struct {
	status         int
	stdout, stderr string
}

// run runs the program to its end.
func run(t *testing.T, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("run: %v %v\n%s%s", err, ctx.Err(), stdout.String(), stderr.String())
	}
	e := ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if strings.Contains(e.stdout+e.stderr, "DATA RACE") {
		t.Errorf("a data race:\n%s%s", e.stdout, e.stderr)
	}
	return e
}

// runJSON runs the program on db and reads its result.
func runJSON(t *testing.T, db *testdb.DB, wantStatus int, args ...string) summary {
	t.Helper()
	e := run(t, append([]string{"-json", "-db", db.DSN}, args...)...)
	if e.status != wantStatus {
		t.Fatalf("exit status: got %d, want %d\n%s%s", e.status, wantStatus, e.stdout, e.stderr)
	}
	var s summary
	if err := json.Unmarshal([]byte(e.stdout), &s); err != nil {
		t.Fatalf("standard output is no JSON: %v\n%s", err, e.stdout)
	}
	if s.Database != db.Vendor {
		t.Errorf("database: got %s, want %s", s.Database, db.Vendor)
	}
	t.Logf("%.1f s, %.0f messages/s, %d given back, %d locks lost, problems: %s",
		s.Seconds, s.PerSecond, s.GivenBack, s.LocksLost, strings.Join(s.Problems, "; "))
	return s
}

func TestEveryGroupIsReleasedOnce(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		s := runJSON(t, db, 0, small...)
		if s.Verdict != ok || !reflect.DeepEqual(s.Audit, audit{Released: 40}) || s.LocksLeft != 0 {
			t.Errorf("got %+v", s)
		}
		sum := total(s.Workers)
		if sum.Duplicates == 0 || sum.Late == 0 || sum.Handovers == 0 {
			t.Errorf("duplicates %d, late %d, hand-overs %d: want some of each", sum.Duplicates, sum.Late, sum.Handovers)
		}
		for _, w := range s.Workers {
			if w.Messages == 0 {
				t.Errorf("worker %d did nothing", w.Worker)
			}
		}
		if err := schema.Check(t.Context(), db, "INT_"); !errors.Is(err, schema.ErrMissing) {
			t.Errorf("INT_LOCK, which the run created, after it: %v", err)
		}
	})
}

func TestWithoutTheLockThereIsDamage(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		s := runJSON(t, db, 1, append(small, "-nolock", "-work", "20ms")...)
		if s.Verdict != damaged || s.Audit.Missing+s.Audit.Doubled == 0 || len(s.Problems) == 0 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestARunLeavesTheTablesOfOthersAlone(t *testing.T) {
	db := testdb.Open(t, "sqlite")
	if s := runJSON(t, db, 0, append(small, "-keep")...); s.Verdict != ok {
		t.Fatalf("got %+v", s)
	}
	if s := runJSON(t, db, 0, small...); s.Verdict != ok {
		t.Fatalf("got %+v", s)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM AGG_OUTBOX").Scan(&n); err != nil || n != 40 {
		t.Errorf("outbox of the run that was kept: %d rows, %v; want 40", n, err)
	}
	if err := schema.Check(t.Context(), db, "INT_"); err != nil {
		t.Errorf("INT_LOCK, which was there before: %v", err)
	}
}

// running is a run under way, in a process group of its own, as a shell
// would start it.
type running struct {
	cmd     *exec.Cmd
	workers []int
	output  chan string // all of it, once it has ended
}

// start returns when messages are being handled.
func start(t *testing.T, db *testdb.DB, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(program, append([]string{"-db", db.DSN}, args...)...), output: make(chan string, 1)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.cmd.Stdout // the same pipe
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	var seen strings.Builder
	for {
		line, err := lines.ReadString('\n')
		seen.WriteString(line)
		if err != nil {
			t.Fatalf("the run ended early: %v\n%s", err, seen.String())
		}
		if _, pids, ok := strings.Cut(line, " goroutines: pid "); ok {
			for _, text := range strings.Fields(pids) {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				r.workers = append(r.workers, pid)
			}
		}
		if strings.HasPrefix(line, "groups ") && !strings.Contains(line, " 0 messages/s") {
			break
		}
	}
	if len(r.workers) != 4 {
		t.Fatalf("workers: got pids %v, want 4", r.workers)
	}
	go func() {
		_, _ = io.Copy(&seen, lines)
		r.output <- seen.String()
	}()
	return r
}

// wait waits for the end of the coordinator and returns its exit status.
func (r *running) wait(t *testing.T, limit time.Duration) (status int, output string) {
	t.Helper()
	select {
	case output = <-r.output:
	case <-time.After(limit):
		t.Fatalf("the run has not ended within %v", limit)
	}
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode(), output
}

func (r *running) wantNoWorker(t *testing.T, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		alive := slices.DeleteFunc(slices.Clone(r.workers), gone)
		if len(alive) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("workers %v are still there after %v", alive, limit)
		}
	}
}

// gone is also said of a process that has ended and whose new parent, some
// containers' first process, never asks for its status.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func wantNoLock(t *testing.T, db *testdb.DB) {
	t.Helper()
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM INT_LOCK").Scan(&n); err != nil || n != 0 {
		t.Errorf("locks left behind: %d, %v; want none", n, err)
	}
}

func TestCtrlCLeavesNoLockBehind(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		r := start(t, db, endless...)
		if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		status, output := r.wait(t, 10*time.Second)
		if status != 130 || !strings.Contains(output, "verdict: interrupted, and left no lock behind") {
			t.Errorf("exit status %d, want 130\n%s", status, output)
		}
		r.wantNoWorker(t, 0)
		wantNoLock(t, db)
	})
}

func TestWorkersEndWithTheirCoordinator(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		r := start(t, db, endless...)
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.wait(t, 10*time.Second)
		r.wantNoWorker(t, 5*time.Second)
		wantNoLock(t, db)
	})
}

func TestAnUnusableDatabaseIsAClearError(t *testing.T) {
	const password = "s3cr%23t"
	missing := filepath.Join(t.TempDir(), "no-such-folder", "x.db")
	for dsn, want := range map[string]string{
		"postgres://user:" + password + "@127.0.0.1:1/app?sslmode=disable": "cannot reach the postgres database",
		"postgres://user:" + password + "%zz@127.0.0.1/app":                "cannot be parsed",
		"user:" + password + "@tcp(127.0.0.1:1)/app":                       "cannot reach the mysql database",
		"user:" + password + "@tcp(127.0.0.1:1)/":                          "database name",
		"user:" + password + "@tcp(127.0.0.1:1":                            "database name",
		"oracle://user:" + password + "@127.0.0.1/app":                     "unknown kind of database",
		"host=127.0.0.1 password=" + password:                              "unknown kind of database",
		"sqlite::memory:":                                                  "needs a file",
		missing:                                                            "cannot reach the sqlite database",
	} {
		e := run(t, append(small, "-db", dsn)...)
		all := e.stdout + e.stderr
		if e.status != 2 || !strings.Contains(all, want) {
			t.Errorf("-db %s: exit status %d and %q, want 2 and %q", dsn, e.status, all, want)
		}
		for _, secret := range []string{password, "s3cr#t", "s3cr"} {
			if strings.Contains(all, secret) {
				t.Errorf("-db %s: the password is in the output: %s", dsn, all)
			}
		}
	}
}

func TestWrongFlagsAreAClearError(t *testing.T) {
	for _, args := range [][]string{
		{"-nosuch"}, {"extra"}, {"-workers", "0"}, {"-groups", "10", "-messages", "9"}, {"-ttl", "1ms"},
		{"-kill", "-nolock"}, {"-stop", "-nolock"}, {"-kill", "-stop"}, {"-stop", "-workers", "1"},
	} {
		if e := run(t, args...); e.status != 2 || e.stderr == "" || e.stdout != "" {
			t.Errorf("%v: got %+v, want exit status 2 and a word about it", args, e)
		}
	}
	if e := run(t, "-h"); e.status != 0 || !strings.Contains(e.stderr, "Exit status") {
		t.Errorf("-h: got %+v", e)
	}
}
