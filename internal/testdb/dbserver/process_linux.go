package dbserver

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent sends a process a signal even if we are killed outright.
func dieWithParent(attr *syscall.SysProcAttr, end syscall.Signal) { attr.Pdeathsig = end }

// children lists the living children of a process. It reads /proc, since not
// every container has a ps.
func children(parent int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended in the meantime
		}
		// "12 (name) S 1 ...": the name may hold anything, also parentheses.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || string(fields[0]) == "Z" || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, pid)
		}
	}
	return found, nil
}
