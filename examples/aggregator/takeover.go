package main

import "fmt"

// takeover is the story of the group of a worker that was killed or stopped.
type takeover struct {
	Group      string       `json:"group"`
	Mishap     mishap       `json:"mishap"`
	Worker     int          `json:"worker"` // that it happened to
	PID        int          `json:"pid"`
	LeaseLeft  milliseconds `json:"lease_left_ms"`
	FinishedBy int          `json:"finished_by"` // 0: nobody
	After      milliseconds `json:"after_ms"`
	// How it goes on for a stopped worker.
	ContinuedAfter milliseconds `json:"continued_after_ms,omitempty"`
	Lost           string       `json:"lost,omitempty"` // how it had lost the lock, so that it wrote nothing

	delivery int // in the middle of which it happened
}

// isComplete tells whether all of it happened.
func (t *takeover) isComplete() bool {
	return t != nil && t.FinishedBy != 0 && (t.Mishap == killed || t.Lost != "")
}

// lines is the story for people.
func (t *takeover) lines() []string {
	lines := []string{
		fmt.Sprintf("worker %d was %s in the middle of %s with %s of its lease", t.Worker, t.Mishap, t.Group, t.LeaseLeft),
		fmt.Sprintf("left, worker %d finished it after %s", t.FinishedBy, t.After),
	}
	if t.Mishap == stopped {
		lines = append(lines,
			fmt.Sprintf("worker %d continued after %s and wrote nothing: it had lost the lock", t.Worker, t.ContinuedAfter),
			fmt.Sprintf("(%s)", t.Lost))
	}
	return lines
}
