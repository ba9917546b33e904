//go:build unix

package dbserver

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// StopMode is a way to end a server. None of them waits for clients.
type StopMode int

const (
	// Fast is a clean shutdown: open transactions are rolled back, sessions
	// are told, and the data needs no recovery.
	Fast StopMode = iota
	// Immediate ends the server without that; the next start recovers.
	// Postgres still tells its sessions. MySQL and MariaDB have no such mode,
	// and are killed.
	Immediate
	// Kill is kill -9 for the server's process and all its children: none of
	// them gets a last word.
	Kill
)

func (m StopMode) String() string {
	switch m {
	case Fast:
		return "fast"
	case Immediate:
		return "immediate"
	case Kill:
		return "kill"
	}
	return fmt.Sprintf("StopMode(%d)", int(m))
}

// stopTimeout is for a machine that is busy compiling tests.
const stopTimeout = 60 * time.Second

var errNotRunning = errors.New("it is not running")

// Stop ends the server and returns when it is gone. It is an error if the
// server does not run, and if a Fast end was not clean. A server that does not
// end in time is killed, and that is an error too.
func (s *Server) Stop(mode StopMode) error {
	if !s.Running() {
		return fmt.Errorf("stop %s: %w", s.Vendor, errNotRunning)
	}
	signal, gentle := s.plan.signals[mode]
	if !gentle || signal == syscall.SIGKILL {
		return s.kill()
	}
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s has not ended within %v of its %v stop", s.Vendor, stopTimeout, mode), s.kill())
	}
	if mode == Fast && !s.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not end cleanly: %v\n%s", s.Vendor, s.cmd.ProcessState, s.LogTail(15))
	}
	return nil
}

// kill ends the server's children and then the server. It is frozen first, so
// that it neither starts more of them nor learns that they die.
func (s *Server) kill() error {
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	deadline := time.Now().Add(stopTimeout)
	for {
		family, err := children(s.cmd.Process.Pid)
		if err == nil && len(family) > 0 && time.Now().After(deadline) {
			err = fmt.Errorf("processes %v of %s live on after kill -9", family, s.Vendor)
		}
		if err != nil || len(family) == 0 {
			_ = s.cmd.Process.Kill()
			<-s.exited
			return err
		}
		for _, pid := range family {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
