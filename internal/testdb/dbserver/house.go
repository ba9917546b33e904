//go:build unix

// Package dbserver runs throw-away PostgreSQL, MySQL and MariaDB servers from
// the programs of this machine: it finds them, makes their data, starts them
// and ends them. It installs nothing; package serve does.
//
// Servers live in a House, each with a folder, a port and a socket of its own.
// They listen on 127.0.0.1 only. When the process that made the House ends, in
// whatever way, the servers and the House's folder go too. (Where there is no
// parent-death signal, that is, not on Linux, kill -9 leaves the servers.)
package dbserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// House is a folder, and the servers that live in it.
type House struct {
	Dir   string // ends with the House
	Cache string // stays: see CacheFolder

	durable bool
	say     func(format string, args ...any)
	lock    *os.File // held while the house lives, so that a sweep can tell
	remover *remover
	work    chan func() // for the thread that starts processes; see Start

	mu      sync.Mutex
	servers []*Server
}

// NewHouse makes a House, which must be closed. Durable servers write to disk
// as in production; the others trade a crash for speed. What takes long is
// announced through say.
func NewHouse(durable bool, say func(format string, args ...any)) (*House, error) {
	cache, err := CacheFolder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	base, err := scratch()
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return nil, err
	}
	h := &House{Dir: dir, Cache: cache, durable: durable, say: say, work: make(chan func())}
	if h.remover, err = newRemover(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// The servers' own users pass through here to their own folders.
	err = os.Chmod(dir, 0o711)
	if err == nil {
		// Locked first and named afterwards, or a sweep beside us could find
		// the file unlocked.
		h.lock, err = LockFile(filepath.Join(dir, "unnamed"), false)
	}
	if err == nil {
		err = os.Rename(h.lock.Name(), filepath.Join(dir, "lock"))
	}
	if err != nil {
		return nil, errors.Join(err, h.remover.remove())
	}
	go h.startProcesses()
	return h, nil
}

// Start starts a process that gets a signal when ours ends before it, on Linux
// even after kill -9. The house must outlive it: there, what counts is the end
// of the *thread* that started it, so all are started by one that lives as long
// as the house.
func (h *House) Start(cmd *exec.Cmd, end syscall.Signal) error {
	dieWithParent(cmd.SysProcAttr, end)
	result := make(chan error)
	h.work <- func() { result <- cmd.Start() }
	return <-result
}

// startProcesses ends with Close, and its thread with it.
func (h *House) startProcesses() {
	runtime.LockOSThread()
	for f := range h.work {
		f()
	}
}

// command is what runs in a server's folder, as its user, and in a group of
// its own: Ctrl-C is for the tests, which may want their databases a little
// longer.
func command(ctx context.Context, argv []string, dir string, as *syscall.Credential) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	return cmd
}

// Servers lists what Launch has started.
func (h *House) Servers() []*Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*Server(nil), h.servers...)
}

// Close ends the servers, quickly since nobody will want their data, and
// removes their files.
func (h *House) Close() error {
	var wg sync.WaitGroup
	servers := h.Servers()
	errs := make([]error, len(servers))
	for i, s := range servers {
		if s.Running() {
			wg.Go(func() { errs[i] = s.Stop(Immediate) })
		}
	}
	wg.Wait()
	close(h.work)
	if err := h.remover.remove(); err != nil {
		errs = append(errs, fmt.Errorf("remove %s: %w", h.Dir, err))
	}
	return errors.Join(append(errs, h.lock.Close())...)
}
