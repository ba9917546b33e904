package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen is where people look: on a terminal the progress is one line that is
// rewritten in place, in a file or a pipe one line each second.
type screen struct {
	out      io.Writer
	terminal bool
	colours  bool
	onLine   bool      // the cursor stands behind a progress line
	printed  time.Time // the last progress line, if not on a terminal
	unseen   string    // the progress since then
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out, printed: time.Now()}
	if info, err := out.Stat(); err == nil {
		s.terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	s.colours = s.terminal && os.Getenv("NO_COLOR") == ""
	return s
}

// progress must stay below 80 columns: a line that wraps cannot be rewritten.
func (s *screen) progress(done, all int, text string) {
	const width = 16
	full := width * done / max(all, 1)
	if !s.terminal {
		s.unseen = fmt.Sprintf("groups %d/%d   %s\n", done, all, strings.TrimSpace(text))
		if time.Since(s.printed) >= time.Second {
			s.end()
		}
		return
	}
	bar := s.green(strings.Repeat("#", full)) + s.dim(strings.Repeat(".", width-full))
	fmt.Fprintf(s.out, "\r\x1b[Kgroups %d/%d %s %s", done, all, bar, text)
	s.onLine = true
}

// note prints a line for good, above the progress.
func (s *screen) note(format string, args ...any) {
	if s.onLine {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.onLine = false
	}
	fmt.Fprintf(s.out, format+"\n", args...)
}

// end leaves the last progress line standing.
func (s *screen) end() {
	if s.onLine {
		fmt.Fprintln(s.out)
		s.onLine = false
	}
	if s.unseen != "" {
		fmt.Fprint(s.out, s.unseen)
		s.unseen, s.printed = "", time.Now()
	}
}

func (s *screen) colour(code, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string   { return s.colour("1", text) }
func (s *screen) dim(text string) string    { return s.colour("2", text) }
func (s *screen) red(text string) string    { return s.colour("1;31", text) }
func (s *screen) green(text string) string  { return s.colour("32", text) }
func (s *screen) yellow(text string) string { return s.colour("33", text) }
