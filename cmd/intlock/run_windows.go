package main

import (
	"os"
	"os/exec"
	"syscall"
)

var forwarded = []os.Signal{os.Interrupt}

func ends(os.Signal) bool { return true }

func together(*exec.Cmd, *os.File) bool { return false }

// send can only end a process here.
func send(p *os.Process, _ bool, s syscall.Signal) {
	if s == syscall.SIGTERM || s == syscall.SIGKILL {
		p.Kill()
	}
}

func left(*os.Process, bool) bool { return false }

func statusOf(state *os.ProcessState) int { return state.ExitCode() }
