//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// canStop: processes can be stopped and continued here.
const canStop = true

// stop is SIGSTOP: the process stands still wherever it is, with all it has.
func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// resume is SIGCONT: it goes on there, and no time seems to have passed.
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// whenContinued tells this process that it was stopped and goes on.
func whenContinued() (continued <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCONT)
	return signals, func() { signal.Stop(signals) }
}
