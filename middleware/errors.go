package middleware

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrRefused is matched by a RefusedError.
	ErrRefused = errors.New("middleware: refused")

	// ErrUnavailable is matched by the error of a request that did not run because
	// the database did not say whether another one is under way. It is no refusal:
	// nothing is known of a duplicate.
	ErrUnavailable = errors.New("middleware: lock unavailable")

	// ErrKey is matched by the error of a request that has no key, or too long a
	// one.
	ErrKey = errors.New("middleware: no usable key")

	// ErrSkip, returned by a function that finds the key of a request, lets the request
	// pass without a lock.
	ErrSkip = errors.New("middleware: skip")
)

// RefusedError is the answer to a request while another one with its key is under
// way, or in the quiet period after it. It does not say whose that is, and may be
// shown to whoever made the request.
type RefusedError struct {
	// Code and Text are WithRefusal's.
	Code, Text string
	// RetryAfter is when it may be worth to try again: what is left of the other
	// one's lease at the most, 0 if that is not known. It often is free earlier.
	RetryAfter time.Duration
}

// Error returns the text.
func (e *RefusedError) Error() string { return e.Text }

// Is implements the match with ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func unavailable(operation string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, operation, err)
}
