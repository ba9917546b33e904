package schedule

import (
	"fmt"
	"time"
)

// Outcome is what became of a call.
type Outcome int

const (
	// NotRun: there was no answer from the database, or the task is wrong. The
	// error says which.
	NotRun Outcome = iota
	// Executed: the job ran. How it ended, the error says.
	Executed
	// Locked: it was skipped, as its lock is held: it runs elsewhere, or its
	// minimum time has not passed.
	Locked
	// AlreadyDone: it was skipped, as a run for this instant has begun before. See
	// At.
	AlreadyDone
)

func (o Outcome) String() string {
	switch o {
	case NotRun:
		return "not run"
	case Executed:
		return "executed"
	case Locked:
		return "skipped: locked"
	case AlreadyDone:
		return "skipped: already done"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Result says what became of a call, and if the job was skipped as far as is
// known why.
type Result struct {
	Outcome Outcome

	// Holder and ClientID are who has the lock, if Outcome is Locked. Either may be
	// empty.
	Holder, ClientID string
	// Until is when its lease ends at the latest unless it is renewed, on this
	// process's clock. The zero time if that is not known.
	Until time.Time

	// Took is how long the job took.
	Took time.Duration
}

// Executed reports whether the job ran.
func (r Result) Executed() bool { return r.Outcome == Executed }

func (r Result) String() string {
	text := r.Outcome.String()
	switch {
	case r.Outcome == Executed:
		text += fmt.Sprintf(" in %v", r.Took.Round(time.Millisecond))
	case r.Outcome == Locked && r.Holder != "":
		text += " by " + r.Holder
	case r.Outcome == Locked && r.ClientID != "":
		text += " by client " + r.ClientID
	}
	if !r.Until.IsZero() {
		text += " until " + r.Until.Format(time.RFC3339)
	}
	return text
}
