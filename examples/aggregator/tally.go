package main

import (
	"fmt"
	"time"
)

// milliseconds is a duration that reads well in JSON.
type milliseconds float64

func inMilliseconds(d time.Duration) milliseconds { return milliseconds(d.Microseconds()) / 1000 }

// String is for people.
func (m milliseconds) String() string {
	if m >= 1000 {
		return fmt.Sprintf("%.2f s", float64(m)/1000)
	}
	return fmt.Sprintf("%.0f ms", float64(m))
}

// tally is what one worker did.
type tally struct {
	Worker     int          `json:"worker"`
	PID        int          `json:"pid"`
	Mishap     mishap       `json:"mishap,omitempty"`
	Messages   int          `json:"messages"` // acknowledged; the next three are among them
	Duplicates int          `json:"duplicates"`
	Late       int          `json:"late"`
	Released   int          `json:"released"`
	Handovers  int          `json:"hand_overs"`
	MeanWait   milliseconds `json:"mean_wait_ms"`
	MaxWait    milliseconds `json:"max_wait_ms"`

	waited time.Duration
}

func (t *tally) count(r report) {
	t.Messages++
	switch r.Outcome {
	case released:
		t.Released++
	case duplicate:
		t.Duplicates++
	case late:
		t.Late++
	}
	if r.Handed {
		t.Handovers++
	}
	t.waited += r.Waited
	t.MeanWait = inMilliseconds(t.waited / time.Duration(t.Messages))
	t.MaxWait = max(t.MaxWait, inMilliseconds(r.Waited))
}

func total(all []*tally) *tally {
	sum := &tally{}
	for _, t := range all {
		sum.Messages += t.Messages
		sum.Duplicates += t.Duplicates
		sum.Late += t.Late
		sum.Released += t.Released
		sum.Handovers += t.Handovers
		sum.waited += t.waited
		sum.MaxWait = max(sum.MaxWait, t.MaxWait)
	}
	sum.MeanWait = inMilliseconds(sum.waited / time.Duration(max(1, sum.Messages)))
	return sum
}

func (t *tally) columns() string {
	return fmt.Sprintf("  %8d  %10d  %4d  %8d  %10d  %9s  %7s",
		t.Messages, t.Duplicates, t.Late, t.Released, t.Handovers, t.MeanWait, t.MaxWait)
}
