// Command intlock runs programs under locks in an SQL database, and shows and mends
// what is in the lock table. `intlock help` lists what it can do; docs/cli.md is the
// same as a page.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

func init() {
	// The child of `run` dies with the thread that started it (see run_linux.go):
	// that has to be one that stays.
	runtime.LockOSThread()
}

func main() {
	os.Exit(program{os.Stdin, os.Stdout, os.Stderr}.main(os.Args[1:]))
}

// program is the command with its streams.
type program struct {
	in       *os.File
	out, err io.Writer
}

// The exit statuses of all commands. Those of run are out of the way of other
// programs', and those of flock(1).
const (
	exitOK       = 0
	exitFailed   = 1 // nothing found, a check that failed
	exitUsage    = 2
	exitDatabase = 69 // sysexits: EX_UNAVAILABLE
	exitHeld     = 75 // EX_TEMPFAIL
	exitLost     = 76 // EX_PROTOCOL, for want of a better one
	exitCannot   = 126
	exitNotFound = 127
)

// failure is an error with an exit status.
type failure struct {
	status int
	error
}

func (f failure) Unwrap() error { return f.error }

func usageError(format string, args ...any) error {
	return failure{exitUsage, fmt.Errorf(format, args...)}
}

// exited is the end of a command that has said what there was to say.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// main runs a command line and returns the exit status.
func (p program) main(args []string) int {
	if len(args) == 0 {
		overview(p.err)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		return p.help(args[1:])
	case "version", "-version", "--version":
		fmt.Fprintln(p.out, version())
		return exitOK
	}
	c := find(args[0])
	if c == nil {
		fmt.Fprintf(p.err, "intlock: unknown command %q; `intlock help` lists them\n", args[0])
		return exitUsage
	}
	err := c.execute(context.Background(), p, args[1:])
	var done exited
	var failed failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &done):
		return int(done)
	case errors.As(err, &failed):
		fmt.Fprintf(p.err, "intlock %s: %v\n", c.name, failed.error)
		if failed.status == exitUsage {
			fmt.Fprintf(p.err, "usage: intlock %s\n`intlock help %s` says more\n", c.usage, c.name)
		}
		return failed.status
	}
	fmt.Fprintf(p.err, "intlock %s: %v\n", c.name, err)
	return exitFailed
}

func (p program) help(args []string) int {
	if len(args) == 0 {
		overview(p.out)
		return exitOK
	}
	c := find(args[0])
	if c == nil {
		fmt.Fprintf(p.err, "intlock: unknown command %q; `intlock help` lists them\n", args[0])
		return exitUsage
	}
	c.help(p.out)
	return exitOK
}
