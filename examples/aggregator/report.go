package main

import (
	"fmt"
	"strings"
)

// verdict is the last word.
type verdict string

const (
	ok          verdict = "ok"
	damaged     verdict = "damaged"
	interrupted verdict = "interrupted"
	failed      verdict = "failed"
)

func (v verdict) exitStatus() int {
	switch v {
	case ok:
		return 0
	case interrupted:
		return 130
	}
	return 1
}

// summary is the result of a run: what -json prints, and what the table and
// the verdict are made of.
type summary struct {
	Verdict   verdict   `json:"verdict"`
	Problems  []string  `json:"problems"`
	Database  string    `json:"database"`
	Locked    bool      `json:"locked"`
	Seed      uint64    `json:"seed"`
	Groups    int       `json:"groups"`
	Messages  int       `json:"messages"`
	Audit     audit     `json:"outbox"`
	GivenBack int       `json:"deliveries_given_back"`
	LocksLost int       `json:"locks_lost"`
	LocksLeft int       `json:"locks_left_behind"`
	Seconds   float64   `json:"seconds"`
	PerSecond float64   `json:"messages_per_second"`
	Takeover  *takeover `json:"takeover,omitempty"`
	Total     *tally    `json:"-"`
	Workers   []*tally  `json:"workers"`
}

// judge sets the verdict. Damage comes first, even of an interrupted run.
func (s *summary) judge(err error, wasInterrupted bool, want mishap, unclean []string) {
	a := s.Audit
	damage := func(n int, text string) {
		if n > 0 {
			s.Verdict = damaged
			s.Problems = append(s.Problems, fmt.Sprintf("%d of %d groups %s", n, s.Groups, text))
		}
	}
	s.Verdict, s.Problems = ok, []string{}
	damage(a.Doubled, fmt.Sprintf("released more than once (%d messages doubled)", a.MessagesDoubled))
	if !wasInterrupted && err == nil {
		damage(a.Missing, fmt.Sprintf("never released (%d messages lost)", a.MessagesLost))
	}
	damage(a.Wrong, "released with a wrong result")
	fault := func(text string) {
		s.Problems = append(s.Problems, text)
		if s.Verdict == ok {
			s.Verdict = failed
		}
	}
	if err != nil && !wasInterrupted {
		fault(err.Error())
	}
	if s.LocksLeft > 0 {
		fault(fmt.Sprintf("%d locks left behind", s.LocksLeft))
	}
	for _, text := range unclean {
		fault(text)
	}
	if want != none && !wasInterrupted && err == nil && !s.Takeover.isComplete() {
		text := "no worker was " + string(want) + " in the middle of a group that another one finished"
		if want == stopped {
			text += ", and lost its lock"
		}
		fault(text)
	}
	if wasInterrupted && s.Verdict == ok {
		s.Verdict = interrupted
	}
}

// print shows the table and the verdict.
func (s *summary) print(to *screen) {
	to.note("")
	to.note("%s", to.bold("  worker      pid  messages  duplicates  late  released  hand-overs  mean wait  longest"))
	for _, t := range s.Workers {
		end := ""
		if t.Mishap != none {
			end = to.yellow("  " + string(t.Mishap))
		}
		to.note("  %6d  %7d%s%s", t.Worker, t.PID, t.columns(), end)
	}
	to.note("%s", to.bold(fmt.Sprintf("   total         %s", s.Total.columns())))
	to.note("")
	if s.GivenBack > 0 {
		to.note("%d deliveries failed and were sent again, %d of them because the lock was lost", s.GivenBack, s.LocksLost)
	}
	if s.Takeover.isComplete() {
		to.note("take-over: %s", strings.Join(s.Takeover.lines(), "\n           "))
	}
	if s.Verdict == damaged {
		const shown = 6
		for _, text := range s.Audit.findings[:min(shown, len(s.Audit.findings))] {
			to.note("  %s", text)
		}
		if more := len(s.Audit.findings) - shown; more > 0 {
			to.note("  ... and %d more groups", more)
		}
		to.note("")
	}
	var lines []string
	word := string(s.Verdict)
	switch s.Verdict {
	case ok:
		word = to.green("ok") + ", every group released exactly once"
		lines = []string{fmt.Sprintf("%d groups, %d messages, none lost, none doubled", s.Groups, s.Messages)}
	case interrupted:
		word = to.yellow(word) + ", and left no lock behind"
		lines = []string{fmt.Sprintf("%d of %d groups released by then, none of them twice", s.Audit.Released, s.Groups)}
	default:
		word = to.red(strings.ToUpper(word))
		lines = s.Problems
	}
	to.note("verdict: %s", word)
	for _, line := range lines {
		to.note("         %s", line)
	}
	to.note("         %.1f s, %.0f messages/s", s.Seconds, s.PerSecond)
}
