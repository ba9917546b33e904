//go:build unix && !linux

package dbserver

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// dieWithParent has no counterpart here: after a kill -9 of its parent, its
// servers must be ended by hand.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// children lists the living children of a process.
func children(parent int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var found []int
	for line := range bytes.Lines(out) {
		var pid, of int
		var state string
		if _, err := fmt.Sscan(string(line), &pid, &of, &state); err == nil && of == parent && !strings.HasPrefix(state, "Z") {
			found = append(found, pid)
		}
	}
	return found, nil
}
