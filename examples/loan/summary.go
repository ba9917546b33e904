package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// counts are the answers that customers got.
type counts struct {
	Made        int // 201: a loan was made
	Found       int // 200: there was one already
	Refused     int // 409: another click is being processed
	Unavailable int // 503: the customer tried again
}

// summary is the result.
type summary struct {
	Right     bool // one loan for each user and class
	Lock      bool
	Processes int
	Requests  int
	Wanted    int // loans: users x classes
	Loans     int
	Several   int // users and classes with more than one
	None      int // without any
	Answers   counts

	RefusedMedian, Refused99 time.Duration // how long a refusal took
	Took                     time.Duration
}

func (s *summary) print(to io.Writer) {
	with := "with the lock"
	if !s.Lock {
		with = "without the lock"
	}
	fmt.Fprintf(to, "%d requests to %d processes in %v, %s\n\n", s.Requests, s.Processes, s.Took.Round(10*time.Millisecond), with)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  loan made\t%d\t\n", s.Answers.Made)
	fmt.Fprintf(w, "  there was one\t%d\t\n", s.Answers.Found)
	fmt.Fprintf(w, "  refused\t%d\t", s.Answers.Refused)
	if s.Answers.Refused > 0 {
		fmt.Fprintf(w, "after %v (median), %v (99 of 100)", s.RefusedMedian.Round(10*time.Microsecond), s.Refused99.Round(10*time.Microsecond))
	}
	fmt.Fprintf(w, "\n  tried again\t%d\t\n", s.Answers.Unavailable)
	w.Flush()
	fmt.Fprintln(to)
	switch {
	case s.Right:
		fmt.Fprintf(to, "RIGHT: %d users and classes, %d loans.\n", s.Wanted, s.Loans)
	default:
		fmt.Fprintf(to, "WRONG: %d users and classes, %d loans: %d have more than one, %d have none.\n", s.Wanted, s.Loans, s.Several, s.None)
	}
}
