//go:build unix

package testdb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv names the function that a re-executed test binary runs instead of
// its tests.
const childEnv = "INTLOCK_TEST_CHILD"

// Main is for a package whose tests need other processes: the test binary
// itself is started again and runs one of the children.
//
//	func TestMain(m *testing.M) {
//		testdb.Main(m, map[string]func(){"holder": holder})
//	}
//
// A child prints what its parent should know on standard output, one line
// each, and ends by returning (status 0), by os.Exit, or when its parent is
// gone.
func Main(m *testing.M, children map[string]func()) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	child, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "testdb: no child %q, only %s\n", name, strings.Join(slices.Sorted(maps.Keys(children)), ", "))
		os.Exit(2)
	}
	// The parent holds the other end of standard input. If it dies, even by
	// SIGKILL, the pipe ends, and no child outlives a test run.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	child()
	os.Exit(0)
}

// Process is a child started by Spawn.
type Process struct {
	cmd   *exec.Cmd
	lines chan string   // closed at the end of its output
	done  chan struct{} // closed when it has ended; err is set before
	err   error
	stdin io.Closer

	mu     sync.Mutex // guards output
	output []string   // everything it said, for the test's log
}

// Spawn starts a child by its name in Main, with more variables in its
// environment (such as a DB's Driver and DSN). It is killed when the test
// ends, and what it said is then in the log of a failed test.
func Spawn(t testing.TB, name string, env map[string]string) *Process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatalf("testdb: spawn %s: %v", name, err)
	}
	p := &Process{cmd: exec.Command(binary), lines: make(chan string, 1024), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+name)
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	// A group of its own: Ctrl-C ends the parent, and that ends the child.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, errIn := p.cmd.StdinPipe()
	stdout, errOut := p.cmd.StdoutPipe()
	stderr, errErr := p.cmd.StderrPipe()
	if err := errors.Join(errIn, errOut, errErr); err != nil {
		t.Fatalf("testdb: spawn %s: %v", name, err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("testdb: spawn %s: %v", name, err)
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(p.lines)
		p.read(stdout, func(line string) {
			select {
			case p.lines <- line:
			default: // nobody reads them; the output keeps them
			}
		})
	})
	readers.Go(func() { p.read(stderr, func(string) {}) })
	go func() {
		readers.Wait() // before Wait, which closes the pipes
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if !t.Failed() {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		t.Logf("child %s (%d) said:\n  %s", name, p.Pid(), strings.Join(p.output, "\n  "))
	})
	return p
}

func (p *Process) read(from io.Reader, each func(string)) {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		p.mu.Lock()
		p.output = append(p.output, scan.Text())
		p.mu.Unlock()
		each(scan.Text())
	}
	_, _ = io.Copy(io.Discard, from) // an overlong line must not block the child
}

// Pid is the child's process number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Line returns the next line of the child's standard output. It fails the
// test if the child ends or the time passes first.
func (p *Process) Line(t testing.TB, timeout time.Duration) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			t.Fatalf("testdb: child %d ended without another line", p.Pid())
		}
		return line
	case <-time.After(timeout):
		t.Fatalf("testdb: no line from child %d within %v", p.Pid(), timeout)
	}
	return ""
}

// Lines are the lines of the child's standard output, for tests that wait for more
// than one child. The channel is closed when the child has ended.
func (p *Process) Lines() <-chan string { return p.lines }

// WaitLine reads lines until one starts with prefix, and returns the rest of
// that one.
func (p *Process) WaitLine(t testing.TB, prefix string, timeout time.Duration) string {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		if rest, ok := strings.CutPrefix(p.Line(t, time.Until(deadline)), prefix); ok {
			return rest
		}
	}
}

// Kill ends the child at once (SIGKILL) and waits until it is gone. A child
// that has ended already is left alone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}

// Stop freezes the child (SIGSTOP), as a long pause would.
func (p *Process) Stop(t testing.TB) { p.signal(t, syscall.SIGSTOP) }

// Cont ends a Stop (SIGCONT).
func (p *Process) Cont(t testing.TB) { p.signal(t, syscall.SIGCONT) }

// Signal sends any other signal, such as SIGTERM.
func (p *Process) Signal(t testing.TB, s syscall.Signal) { p.signal(t, s) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	// os.Process refuses once the child was waited for, so a reused number is
	// never hit.
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("testdb: %v to child %d: %v", s, p.Pid(), err)
	}
}

// Wait waits until the child has ended by itself and returns its error: nil
// for status 0, *exec.ExitError otherwise. It fails the test if the time
// passes first.
func (p *Process) Wait(t testing.TB, timeout time.Duration) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(timeout):
		t.Fatalf("testdb: child %d has not ended within %v", p.Pid(), timeout)
	}
	return nil
}
