package clitest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/repository"
)

// terminal is a program on a terminal.
type terminal struct {
	t    *testing.T
	pty  *os.File
	vt   vt10x.Terminal
	mu   sync.Mutex // guards raw
	raw  strings.Builder
	done chan struct{}
	wait func() error

	process *os.Process
}

func onTerminal(t *testing.T, db *testdb.DB, args ...string) *terminal {
	t.Helper()
	cmd := command(db, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 20, Cols: 100})
	must(t, err)
	term := &terminal{t: t, pty: file, vt: vt10x.New(vt10x.WithSize(100, 20)), done: make(chan struct{}), wait: cmd.Wait, process: cmd.Process}
	go func() {
		defer close(term.done)
		buf := make([]byte, 4096)
		for {
			n, err := file.Read(buf)
			term.vt.Write(buf[:n])
			term.mu.Lock()
			term.raw.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill(); file.Close() })
	return term
}

// shows waits until the screen has a line with all the words.
func (s *terminal) shows(words ...string) {
	s.t.Helper()
	var screen string
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		screen = s.vt.String()
	lines:
		for _, line := range strings.Split(screen, "\n") {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue lines
				}
			}
			return
		}
	}
	s.t.Fatalf("no line with %q on the screen:\n%s", words, screen)
}

func (s *terminal) types(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.pty, text)
	must(s.t, err)
}

// ends waits for the program's end, and returns all that it wrote.
func (s *terminal) ends() string {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		s.t.Fatal("it does not end")
	}
	must(s.t, s.wait())
	return s.said()
}

// said is all that the program wrote as yet.
func (s *terminal) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// stopped reports whether a process is stopped, as by Ctrl-Z.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") T "))
}

// The live screen shows who gets a lock, who takes it over and who gives it back,
// and leaves the terminal as it was.
func TestWatch(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		apply(t, db)
		screen := onTerminal(t, db, "watch", "-interval", "50ms")
		screen.shows("INT_LOCK", "region DEFAULT", "0 held", "q ends")
		holder, _, _ := start(t, db, "", "exec sleep 60", "-ttl", "2s")
		screen.shows("1 held")
		screen.shows("DEFAULT", "job", "@")
		screen.shows("job  acquired by")
		if out, err := command(db, "release", "job", "-reason", "test", "-y").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		screen.shows("job  taken away from", "released by", "test")
		screen.shows("0 held")
		holder.Wait()
		screen.types("q")
		const leaves = "\x1b[?25h\x1b[?1049l"
		all := screen.ends()
		if !strings.HasPrefix(all, "\x1b[?1049h\x1b[?25l") || !strings.HasSuffix(all, leaves) {
			t.Errorf("the terminal is not left as it was: it ends with %q", all[max(0, len(all)-40):])
		}

		// Whatever ends it, the terminal is left as it was. Ctrl-Z does so too, until it
		// goes on.
		for _, end := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			screen = onTerminal(t, db, "watch", "-interval", "50ms")
			screen.shows("0 held")
			if end == 0 {
				screen.types("\x1a")
				eventually(t, "Ctrl-Z", 20*time.Second, func() bool { return stopped(screen.process.Pid) })
				if all := screen.said(); !strings.HasSuffix(all, leaves) {
					t.Errorf("stopped, the screen ends with %q", all[max(0, len(all)-40):])
				}
				must(t, screen.process.Signal(syscall.SIGCONT))
				screen.shows("0 held")
				screen.types("\x03")
			} else {
				must(t, screen.process.Signal(end))
			}
			if all := screen.ends(); !strings.HasSuffix(all, leaves) || strings.Count(all, "\x1b[?1049h") != strings.Count(all, "\x1b[?1049l") {
				t.Errorf("%v: the screen ends with %q", end, all[max(0, len(all)-40):])
			}
		}
	})
}

// Elsewhere watch writes a line for each event.
func TestWatchPipe(t *testing.T) {
	db := testdb.Open(t, "sqlite")
	apply(t, db)
	cmd := command(db, "watch", "-interval", "50ms")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	// It does not tell what is held when it begins, and when that is. So it is seen that
	// it has begun when it tells of something.
	go func() {
		for command(db, "run", "job", "--", "sleep", "0.3").Run() == nil && t.Context().Err() == nil {
		}
	}()
	buf := make([]byte, 4096)
	var text string
	for strings.Count(text, "given back") < 2 {
		n, err := out.Read(buf)
		must(t, err)
		text += string(buf[:n])
	}
	if !strings.Contains(text, "job  acquired by ") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	// One that nobody gives back.
	repo, err := repository.New(t.Context(), db)
	must(t, err)
	defer repo.Close()
	if out, err := repo.Acquire(t.Context(), repository.Request{Key: "short", Name: "short", Attempt: repository.NewAttempt(), TTL: time.Second}); err != nil || !out.Acquired {
		t.Fatalf("%+v, %v", out, err)
	}
	for !strings.Contains(text, "short  expired, was held by ") {
		n, err := out.Read(buf)
		must(t, err)
		text += string(buf[:n])
	}
}

// On a terminal release asks.
func TestReleaseAsks(t *testing.T) {
	db := testdb.Open(t, "sqlite")
	apply(t, db)
	holder, _, _ := start(t, db, "", "exec sleep 60", "-ttl", "2s")
	screen := onTerminal(t, db, "release", "job", "-reason", "test")
	screen.shows("Take job away from", "[y/N]")
	screen.types("y\n")
	screen.shows("and is free")
	screen.ends()
	holder.Wait()
}
