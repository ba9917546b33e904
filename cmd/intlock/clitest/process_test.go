package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
)

func command(db *testdb.DB, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "INTLOCK_DB="+urlOf(db), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	return cmd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func apply(t *testing.T, db *testdb.DB) {
	t.Helper()
	if out, err := command(db, "schema", "apply").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func eventually(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatalf("it does not come within %v: %s", limit, what)
		}
	}
}

// Eight processes add to a file that nothing else protects.
func TestCounter(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		apply(t, db)
		const processes, rounds = 8, 5
		file := filepath.Join(t.TempDir(), "counter")
		must(t, os.WriteFile(file, []byte("0"), 0o644))
		loop := fmt.Sprintf(`for i in $(seq %d); do intlock run counter -- sh -c 'n=$(cat %s); sleep 0.01; echo $((n+1)) > %s' || exit; done`, rounds, file, file)
		var wg sync.WaitGroup
		for range processes {
			wg.Go(func() {
				cmd := command(db)
				cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", loop}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wg.Wait()
		text, err := os.ReadFile(file)
		must(t, err)
		if got := strings.TrimSpace(string(text)); got != strconv.Itoa(processes*rounds) {
			t.Errorf("the counter is %s, want %d", got, processes*rounds)
		}
	})
}

// running reports whether a process is there, and no zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// start runs a child that sets its traps and then tells its process number, and
// returns it.
func start(t *testing.T, db *testdb.DB, traps, script string, args ...string) (cmd *exec.Cmd, child int, errs *bytes.Buffer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	cmd = command(db, append(append([]string{"run"}, args...), "job", "--", "sh", "-c", traps+"echo $$ > "+file+".new; mv "+file+".new "+file+"; "+script)...)
	errs = new(bytes.Buffer)
	cmd.Stderr = errs
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	eventually(t, "the child", 20*time.Second, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	return cmd, child, errs
}

// kill -9 of intlock ends the child, and the lock within its TTL.
func TestKilled(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		apply(t, db)
		cmd, child, _ := start(t, db, "", "exec sleep 60", "-ttl", "2s")
		must(t, cmd.Process.Kill())
		begin := time.Now()
		cmd.Wait()
		eventually(t, "the child's end", 5*time.Second, func() bool { return !running(child) })
		if out, err := command(db, "run", "job", "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if took := time.Since(begin); took > 7*time.Second {
			t.Errorf("the lock was free after %v", took)
		}
	})
}

// Signals go to the command and all that it has started, and its end is intlock's.
func TestSignals(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		apply(t, db)
		for signal, want := range map[syscall.Signal]int{syscall.SIGTERM: 3, syscall.SIGINT: 128 + 2, syscall.SIGUSR1: 4} {
			cmd, child, errs := start(t, db, "trap 'exit 3' TERM; trap 'exit 4' USR1; ", "while :; do sleep 0.05; done")
			must(t, cmd.Process.Signal(signal))
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != want {
				t.Errorf("%v: %v, want status %d; %s", signal, err, want, errs)
			}
			if running(child) {
				t.Errorf("%v: the child runs on", signal)
			}
			if out, err := command(db, "run", "-n", "job", "--", "true").CombinedOutput(); err != nil { // it was given back
				t.Errorf("%v: %v: %s", signal, err, out)
			}
		}
		// While it waits a signal ends it.
		holder, _, _ := start(t, db, "", "exec sleep 60")
		waiter := command(db, "run", "job", "--", "true")
		must(t, waiter.Start())
		time.Sleep(time.Second) // it waits by then; if it does not, TERM ends it as well
		must(t, waiter.Process.Signal(syscall.SIGTERM))
		var exit *exec.ExitError
		if err := waiter.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+15 && exit.Error() != "signal: terminated" {
			t.Errorf("waiting: %v", err)
		}
		holder.Process.Signal(syscall.SIGTERM)
		holder.Wait()
	})
}

// What the command has started and left behind is ended too when the lock is lost, but
// not when the command ends by itself.
func TestLeftBehind(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		apply(t, db)
		for _, lost := range []bool{true, false} {
			file := filepath.Join(t.TempDir(), "left")
			// The one that stays is deaf to TERM; the command itself is not.
			script := "(trap '' TERM; echo > " + file + "; exec sleep 30) >/dev/null 2>&1 & echo $! > " + file + ".pid; while :; do sleep 0.05; done"
			cmd, child, errs := start(t, db, "trap 'exit 0' TERM; ", script, "-ttl", "2s", "-grace", "1s")
			eventually(t, "the one that stays", 20*time.Second, func() bool { _, err := os.Stat(file); return err == nil })
			text, err := os.ReadFile(file + ".pid")
			must(t, err)
			stays, err := strconv.Atoi(strings.TrimSpace(string(text)))
			must(t, err)
			t.Cleanup(func() {
				if running(stays) {
					syscall.Kill(stays, syscall.SIGKILL)
				}
			})
			if lost {
				if out, err := command(db, "release", "job", "-reason", "test", "-y").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			} else {
				must(t, cmd.Process.Signal(syscall.SIGTERM))
			}
			err = cmd.Wait()
			var exit *exec.ExitError
			if lost && (!errors.As(err, &exit) || exit.ExitCode() != 76) || !lost && err != nil {
				t.Errorf("lost %v: %v; %s", lost, err, errs)
			}
			if running(child) {
				t.Errorf("lost %v: the command runs on", lost)
			}
			if running(stays) == lost {
				t.Errorf("lost %v: what it left behind runs: %v", lost, running(stays))
			}
		}
	})
}

// Without its database for longer than the TTL the command is ended, with TERM, and
// KILL if it does not listen.
func TestDatabaseLost(t *testing.T) {
	for _, vendor := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			server := testdb.Private(t, vendor)
			db := server.Open(t)
			apply(t, db)
			cmd, child, errs := start(t, db, "trap '' TERM; ", "while :; do sleep 0.1; done", "-ttl", "2s", "-grace", "500ms")
			server.Stop(t, testdb.Kill)
			begin := time.Now()
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 76 || !strings.Contains(errs.String(), "ending the command") {
				t.Errorf("%v, want status 76; %s", err, errs)
			}
			if running(child) {
				t.Error("the child runs on")
			}
			if took := time.Since(begin); took < 500*time.Millisecond || took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The doctor sees a pooler that gives each transaction another connection.
func TestDoctorBehindPooler(t *testing.T) {
	db := testdb.Open(t, "postgres")
	apply(t, db)
	pooled, _ := testdb.Pgbouncer(t, db)
	for _, c := range []struct {
		db   *testdb.DB
		want string
	}{{db, "none in transaction mode"}, {pooled, "one in transaction mode"}} {
		out, err := command(c.db, "doctor").CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v, want %q: %s", err, c.want, out)
		}
	}
}
