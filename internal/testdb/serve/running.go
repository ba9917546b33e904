//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// startTimeout is for the slowest part, a server's first answer, on a machine
// that is busy compiling tests.
const startTimeout = 60 * time.Second

// logName has an extension, because mysqld adds one to a name without.
const logName = "server.log"

// running is a server's process.
type running struct {
	vendor, version string
	dsn, log        string
	cmd             *exec.Cmd
	end             syscall.Signal
	exited          chan struct{} // closed when the process is gone
}

// launch makes the data, from the cache's template if there is one, starts
// the server and waits until it answers.
func (h *house) launch(ctx context.Context, name string, p *plan) error {
	as, err := credential(p.users)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := own(dir, as); err != nil {
		return err
	}
	if p.stage != nil {
		if err := p.stage(dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := h.fill(ctx, name, p, dir, as); err != nil {
		return err
	}

	port, err := freePort()
	if err != nil {
		return err
	}
	r := &running{vendor: name, version: p.version, dsn: p.dsn(port), log: filepath.Join(dir, logName), end: p.end, exited: make(chan struct{})}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := own(r.log, as); err != nil { // MySQL opens it again, as its user
		return err
	}
	argv := p.serve(dir, port, h.durable)
	r.cmd = exec.Command(argv[0], argv[1:]...)
	r.cmd.Dir = dir
	r.cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C", "TZ=UTC")
	r.cmd.Stdout, r.cmd.Stderr = log, log
	// A group of its own: Ctrl-C is for the command, which may want its
	// databases a little longer.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	dieWithParent(r.cmd.SysProcAttr, p.end)
	if err := h.startOnMain(ctx, r); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := r.wait(ctx, p.driver); err != nil {
		return fmt.Errorf("start %s: %w\n%s", name, err, tail(r.log, 15))
	}
	return nil
}

func (h *house) startOnMain(ctx context.Context, r *running) error {
	result := make(chan error, 1)
	start := func() {
		err := r.cmd.Start()
		if err == nil {
			h.mu.Lock()
			h.running = append(h.running, r)
			h.mu.Unlock()
			go func() { _ = r.cmd.Wait(); close(r.exited) }()
		}
		result <- err
	}
	select {
	case h.start <- start:
		return <-result
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait asks until the server answers as the vendor it should be.
func (r *running) wait(ctx context.Context, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := sql.Open(driver, r.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		got, err := vendor.Detect(ctx, db)
		if err == nil && got != r.vendor {
			return fmt.Errorf("a %s answers on its port", got)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(15 * time.Millisecond):
		case <-r.exited:
			return fmt.Errorf("it ended at once: %v", r.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %v", ctx.Err(), err)
		}
	}
}

func (r *running) stop() {
	_ = r.cmd.Process.Signal(r.end)
	select {
	case <-r.exited:
	case <-time.After(5 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
}

// freePort looks below the range from which the system gives ports to
// outgoing connections, so that no test's connection takes it before the
// server does.
func freePort() (int, error) {
	for range 200 {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1")
}

func tail(name string, n int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
