//go:build unix

package dbserver

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

// Server is a server in a House. It keeps its port and its data when it is
// stopped and started again. It is not for use by several goroutines at once.
type Server struct {
	Vendor, Version string
	Driver, DSN     string
	Log             string // the path of its error log

	house *House
	plan  *Plan
	as    *syscall.Credential
	dir   string
	port  int

	cmd    *exec.Cmd     // of the latest start
	exited chan struct{} // closed when that process is gone
}

// Launch makes the data, from the cache's template if there is one, starts
// the server and waits until it answers. The server ends with the House.
func (h *House) Launch(ctx context.Context, p *Plan) (*Server, error) {
	as, err := credential(p.users)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(h.Dir, p.Vendor)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := own(dir, as); err != nil {
		return nil, err
	}
	if p.stage != nil {
		if err := p.stage(dir); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Vendor, err)
		}
	}
	if err := h.fill(ctx, p, dir, as); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Vendor: p.Vendor, Version: p.Version, Driver: p.driver, DSN: p.dsn(port), Log: filepath.Join(dir, logName),
		house: h, plan: p, as: as, dir: dir, port: port}
	h.mu.Lock()
	h.servers = append(h.servers, s)
	h.mu.Unlock()
	return s, s.Start(ctx)
}

// Start starts the server, on the port and with the data it had before, and
// waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	if s.Running() {
		return fmt.Errorf("start %s: it is running", s.Vendor)
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := own(s.Log, s.as); err != nil { // MySQL opens it again, as its user
		return err
	}
	// The context limits how long we wait, not how long it lives.
	cmd := command(context.Background(), s.plan.serve(s.dir, s.port, s.house.durable), s.dir, s.as)
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.house.Start(cmd, s.plan.signals[Immediate]); err != nil {
		return fmt.Errorf("start %s: %w", s.Vendor, err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() { _ = cmd.Wait(); close(exited) }()
	if err := s.wait(ctx); err != nil {
		return fmt.Errorf("start %s: %w\n%s", s.Vendor, err, s.LogTail(15))
	}
	return nil
}

// Running is true from a Start until the process is gone, by a Stop or by
// itself.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// wait asks until the server answers as the vendor it should be.
func (s *Server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		got, err := vendor.Detect(ctx, db)
		if err == nil && got != s.Vendor {
			return fmt.Errorf("a %s answers on its port", got)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(15 * time.Millisecond):
		case <-s.exited:
			return fmt.Errorf("it ended at once: %v", s.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %v", ctx.Err(), err)
		}
	}
}

// LogTail is the end of the server's error log, for a message.
func (s *Server) LogTail(lines int) string {
	text, err := os.ReadFile(s.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}

// FreePort looks below the range from which the system gives ports to
// outgoing connections, so that no test's connection takes it before the
// server does.
func FreePort() (int, error) {
	for range 200 {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1")
}
