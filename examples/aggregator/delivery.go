package main

import "time"

// delivery is one message on its way to a worker, a line of JSON on the
// worker's standard input. The same message may be delivered more than once.
type delivery struct {
	ID     int    `json:"id"` // of this delivery: a message that is sent again gets another
	Group  string `json:"group"`
	Seq    int    `json:"seq"`  // 1 to Size; group and seq identify the message
	Size   int    `json:"size"` // how many messages make the group complete
	Amount int64  `json:"amount"`
	// Stall asks a worker that completes the group with this message to wait
	// where this can happen to it.
	Stall mishap `json:"stall,omitempty"`

	failures int // how often the message was given back; the coordinator's
}

// mishap is what the coordinator does to a worker in the middle of a group.
type mishap string

const (
	none    mishap = ""
	killed  mishap = "killed"  // just before its commit (-kill)
	stopped mishap = "stopped" // and continued later, just before its transaction (-stop)
)

// kind says what a report is about.
type kind string

const (
	isReady  kind = "ready"  // the worker takes deliveries from now on
	isDone   kind = "done"   // the acknowledgement of a delivery
	isFailed kind = "failed" // a delivery to be sent again
	isInside kind = "inside" // the worker stalls in the middle of a group
	isStatus kind = "status" // how many of its goroutines wait for a lock
	isLog    kind = "log"    // a line of its standard error
	isExit   kind = "exit"   // the process has ended
)

// outcome is what became of a message.
type outcome string

const (
	added     outcome = "added"
	released  outcome = "released" // added, and it completed the group
	duplicate outcome = "duplicate"
	late      outcome = "late" // its group had been released
)

// report is what a worker says, a line of JSON on its standard output.
type report struct {
	Kind    kind          `json:"kind"`
	ID      int           `json:"id,omitempty"`
	Outcome outcome       `json:"outcome,omitempty"`
	Handed  bool          `json:"handed,omitempty"` // another worker had the group last
	Waited  time.Duration `json:"waited,omitempty"` // for the lock
	Waiting int           `json:"waiting,omitempty"`
	Lost    string        `json:"lost,omitempty"` // how the lock was lost, if that is why it failed
	Error   string        `json:"error,omitempty"`

	from *process
}
