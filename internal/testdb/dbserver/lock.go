//go:build unix

package dbserver

import (
	"os"
	"syscall"
)

// LockFile takes an exclusive lock on a file, which it makes if need be. The
// lock ends with Close, or with the process. Without wait, a lock that somebody
// else has is an error.
func LockFile(name string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
