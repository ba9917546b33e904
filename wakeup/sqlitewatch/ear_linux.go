package sqlitewatch

import (
	"os"
	"syscall"
)

// inotify tells of writes to files by whatever process of this machine.
type inotify struct {
	file   *os.File
	tokens chan struct{}
}

// listen hears of writes to those of the files that are there. The log of
// journal_mode WAL is, and stays, while a connection is open; in the other modes
// each commit writes to the database file itself.
func listen(files []string) (ear, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	// Not blocking, so that a read waits in the runtime and ends with close.
	e := &inotify{os.NewFile(uintptr(fd), "inotify"), make(chan struct{}, 1)}
	added := 0
	for _, name := range files {
		if _, err = syscall.InotifyAddWatch(fd, name, syscall.IN_MODIFY); err == nil {
			added++
		}
	}
	if added == 0 {
		e.close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	go e.read()
	return e, nil
}

func (e *inotify) heard() <-chan struct{} { return e.tokens }
func (e *inotify) close()                 { e.file.Close() }

// read turns whatever is reported, also that something was left out, into a token.
func (e *inotify) read() {
	buf := make([]byte, 4096)
	for {
		if n, err := e.file.Read(buf); err != nil || n <= 0 {
			return
		}
		select {
		case e.tokens <- struct{}{}:
		default:
		}
	}
}
