//go:build unix

// Command serve starts throw-away PostgreSQL, MySQL and MariaDB servers, runs
// a command that finds them in its environment, and removes them again:
//
//	go run ./internal/testdb/serve -- go test ./...
//
// Without a command it prints the environment and waits for Ctrl-C.
//
// Each server has its own folder, port and socket, listens on 127.0.0.1 only
// and is nobody's system service. What the machine lacks is installed on
// Debian as root (MySQL is unpacked into the cache folder, not installed);
// elsewhere Docker is asked, and if that is absent too, the message says what
// to do. A vendor whose INTLOCK_TEST_<VENDOR>_DSN is already set, or that
// INTLOCK_TEST_SKIP names, is not started. For a vendor that only Docker has,
// INTLOCK_TEST_SKIP_PRIVATE leaves out the tests that break a server of their
// own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/testdb/dbserver"
	"github.com/intlock/intlock/internal/vendor"
)

func main() {
	only := flag.String("only", "", "start these vendors only, `postgres,mysql,mariadb`; tests of the others are left out")
	durable := flag.Bool("durable", false, "write to disk as in production; the default trades a server crash for speed")
	docker := flag.Bool("docker", false, "use Docker Compose even where servers are installed")
	clean := flag.Bool("clean", false, "remove what is kept between runs, and end")
	flag.Parse()
	if *clean {
		if err := dbserver.CleanCache(); err != nil {
			say("%v", err)
			os.Exit(1)
		}
		return
	}
	code, err := run(*only, *durable, *docker, flag.Args())
	if err != nil {
		say("%v", err)
	}
	os.Exit(code)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "testdb: "+format+"\n", args...) }

func run(only string, durable, docker bool, command []string) (code int, err error) {
	wanted, env, err := choose(only, os.Getenv)
	if err != nil {
		return 2, err
	}

	// From here on a signal ends the set-up or is passed to the command, but
	// never ends this process before it has cleaned up.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go watchParent(os.Getppid(), signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopWatching := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			say("%v: cleaning up", s)
			cancel()
		case <-stopWatching:
		}
	}()

	// The servers' users read some of what we write.
	umask := syscall.Umask(0o022)
	house, err := dbserver.NewHouse(durable, say)
	if err != nil {
		return 1, err
	}
	b := &bringer{house: house, docker: docker}
	defer b.close()
	began := time.Now()
	err = b.up(ctx, wanted)
	close(stopWatching)
	syscall.Umask(umask)
	if ctx.Err() != nil {
		return 130, errors.New("interrupted before the servers were up")
	}
	if err != nil {
		return 1, err
	}
	if len(wanted) > 0 {
		say("%s up in %.1fs", strings.Join(b.names(), ", "), time.Since(began).Seconds())
	}
	env = append(append(env, b.env()...), b.withoutPrivate(ctx, os.Getenv(testdb.SkipPrivateEnv))...)
	if len(command) == 0 {
		printEnv(env)
		say("set these in another shell and run single tests there; Ctrl-C ends the servers")
		<-signals
		return 0, nil
	}
	return runCommand(house, command, env, signals)
}

// watchParent stands in for the signal that go run does not pass on: when it
// is terminated, we would go on without anybody to tell us to stop.
func watchParent(parent int, signals chan<- os.Signal) {
	for os.Getppid() == parent {
		time.Sleep(300 * time.Millisecond)
	}
	signals <- syscall.SIGTERM
}

// choose decides which vendors to start, and what the command is told about
// the ones that -only leaves out.
func choose(only string, getenv func(string) string) (wanted, env []string, err error) {
	servers := []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB}
	onlyList := strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range onlyList {
		if !slices.Contains(servers, name) {
			return nil, nil, fmt.Errorf("-only names %q, which is none of %s", name, strings.Join(servers, ", "))
		}
	}
	skip := testdb.Skipped()
	for _, name := range servers {
		switch {
		case slices.Contains(skip, name):
		case len(onlyList) > 0 && !slices.Contains(onlyList, name):
			skip = append(skip, name)
			env = []string{testdb.SkipEnv + "=" + strings.Join(skip, ",")}
		case getenv(testdb.DSNEnv(name)) != "":
			say("%s: using the server in %s", name, testdb.DSNEnv(name))
		default:
			wanted = append(wanted, name)
		}
	}
	return wanted, env, nil
}

func printEnv(env []string) {
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
}

// runCommand passes signals on and returns the command's status.
func runCommand(house *dbserver.House, command, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	// On a terminal the command must stay in our process group, to be allowed
	// to read from it, and Ctrl-C reaches it without us. Elsewhere it gets a
	// group of its own, so that a signal reaches the test binaries too and
	// not only the go command.
	terminal := isTerminal(os.Stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !terminal}
	if err := house.Start(cmd, syscall.SIGTERM); err != nil {
		return 127, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			switch {
			case !terminal:
				_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
			case s != syscall.SIGINT && s != syscall.SIGQUIT:
				_ = cmd.Process.Signal(s)
			}
		case err := <-done:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
					return 128 + int(status.Signal()), nil // as a shell does
				}
				return exit.ExitCode(), nil
			}
			if err != nil {
				return 1, err
			}
			return 0, nil
		}
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	// /dev/null is a character device too, and what CI gives as stdin.
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}
