//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// forwarded are the signals that are sent on to the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// ends reports whether a signal ends the waiting.
func ends(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// together puts the command into a process group of its own, so that signals reach
// all that it starts, and reports so. On a terminal it stays in ours: from another
// group it could not read, and Ctrl-C reaches it by itself.
func together(cmd *exec.Cmd, in *os.File) (group bool) {
	group = !isTerminal(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	dieWithUs(cmd.SysProcAttr)
	return group
}

// send sends a signal to the command. In its own group it is for all of it; on a
// terminal it has had Ctrl-C already.
func send(p *os.Process, group bool, s syscall.Signal) {
	switch {
	case group:
		// Not waited for yet, or some of the group is left: the number is still its own.
		syscall.Kill(-p.Pid, s)
	case slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}, s):
	default:
		p.Signal(s)
	}
}

// left reports whether some of the command's group is there when it has ended.
func left(p *os.Process, group bool) bool {
	return group && !errors.Is(syscall.Kill(-p.Pid, 0), syscall.ESRCH)
}

// statusOf is the exit status as a shell sees it.
func statusOf(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}
