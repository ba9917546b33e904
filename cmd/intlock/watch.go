package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/intlock/intlock/repository"
)

// watch looks at the table again and again, and shows what it sees.
func watch(ctx context.Context, p program, o *options, repo *repository.DefaultLockRepository) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	out, isFile := p.out.(*os.File)
	live := isFile && isTerminal(out)
	s := &watcher{out: p.out, title: fmt.Sprintf("%s, region %s", repo.Table(), o.region), seen: map[string]lock{}}
	suspended := make(chan os.Signal, 1)
	leave := func() {}
	if live {
		leave = enter(out, p.in)
		defer func() { leave() }()
		go readKeys(p.in, func(key byte) { // q ends it too
			if key == 'q' {
				stop()
			}
		})
		if len(suspends) > 0 { // none would be all
			signal.Notify(suspended, suspends...)
		}
	}
	for {
		all, err := list(ctx, o, repo)
		if ctx.Err() != nil {
			return nil
		}
		events := s.look(all, err)
		if live {
			width, height := terminalSize(out)
			s.draw(width, height)
		} else {
			for _, e := range events {
				fmt.Fprintln(p.out, e)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-suspended: // the shell gets its terminal back meanwhile
			leave()
			suspend()
			leave = enter(out, p.in)
		case <-time.After(o.interval):
		}
	}
}

// enter goes to another screen, without a cursor, on which keys do not show.
func enter(out, in *os.File) (leave func()) {
	restore := rawMode(in)
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	return func() {
		fmt.Fprint(out, "\x1b[?25h\x1b[?1049l")
		restore()
	}
}

// watcher remembers the last look, and the events.
type watcher struct {
	out    io.Writer
	title  string
	begun  bool
	seen   map[string]lock
	locks  []lock
	events []string
	trade  error // what the database said instead of an answer
}

// look takes in what is there now, and returns the new events.
func (s *watcher) look(all []lock, err error) (events []string) {
	now := time.Now().Format("15:04:05")
	add := func(format string, args ...any) {
		events = append(events, now+"  "+fmt.Sprintf(format, args...))
	}
	defer func() {
		s.events = append(s.events, events...)
		s.events = s.events[max(0, len(s.events)-200):]
	}()
	if err != nil {
		if s.trade == nil {
			add("the database does not answer: %s", printable(err.Error()))
		}
		s.trade = err
		return events
	}
	if s.trade != nil {
		add("the database answers again")
	}
	s.trade, s.locks = nil, held(all)
	stand := map[string]lock{}
	ended := map[string]lock{}
	for _, l := range all {
		key := l.Region + " " + l.Key
		if !l.Held {
			ended[key] = l
			continue
		}
		stand[key] = l
		before, was := s.seen[key]
		switch {
		case !was && !s.begun: // held before we came
		case !was:
			add("%s  acquired by %s", l.name(), l.holder())
		case before.ClientID != l.ClientID || before.Holder != l.Holder || l.info.Age < before.info.Age:
			add("%s  taken over by %s, from %s", l.name(), l.holder(), before.holder())
		}
	}
	gone := []string{}
	for key := range s.seen {
		if _, ok := stand[key]; !ok {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	for _, key := range gone {
		before := s.seen[key]
		switch row, there := ended[key]; {
		case !there:
			add("%s  given back by %s", before.name(), before.holder())
		case row.ClientID != before.ClientID:
			add("%s  taken away from %s: %s", before.name(), before.holder(), row.holder())
		default:
			add("%s  expired, was held by %s", before.name(), before.holder())
		}
	}
	s.seen, s.begun = stand, true
	return events
}

// draw draws the screen, of width x height characters.
func (s *watcher) draw(width, height int) {
	var b strings.Builder
	lines := []string{fmt.Sprintf("%s   %d held   %s   q ends", s.title, len(s.locks), time.Now().Format("15:04:05")), ""}
	if s.trade != nil {
		lines[1] = "NO ANSWER: " + printable(s.trade.Error())
	}
	var table strings.Builder
	printTable(&table, s.locks)
	rows := strings.Split(strings.TrimSpace(table.String()), "\n")
	room := max(1, height-len(lines)-2)
	forEvents := min(len(s.events), max(room/3, room-len(rows)))
	if len(rows) > room-forEvents {
		rows = append(rows[:max(1, room-forEvents-1)], fmt.Sprintf("... and %d more", len(s.locks)-max(0, room-forEvents-2)))
	}
	lines = append(lines, rows...)
	lines = append(lines, "")
	lines = append(lines, s.events[len(s.events)-forEvents:]...)
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i >= height {
			break
		}
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	io.WriteString(s.out, b.String())
}
