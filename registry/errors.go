package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

var (
	// ErrNotAcquired is matched by the error of every call that ends without
	// the lock because somebody else has it: a try, a wait that used up its
	// time, a wait whose context ended (which matches ctx.Err() as well). The
	// error is a *NotAcquiredError.
	ErrNotAcquired = errors.New("registry: lock not acquired")

	// ErrLockLost is matched by the errors of Unlock and Renew, by the cause
	// of Hold.Context, and by a nested lock call, when the lease ended before
	// it was given back: someone else may hold the lock, or may have held it.
	// The error is a *LostError. Spring throws ConcurrentModificationException.
	ErrLockLost = errors.New("registry: lock lost")

	// ErrNotHeld is returned when a hold that was given back already is
	// unlocked or renewed, and by RenewLock for a key this registry does not
	// hold. Nothing was changed. Spring throws IllegalMonitorStateException.
	ErrNotHeld = errors.New("registry: lock not held")

	// ErrUnavailable is matched by errors that come from the database and not
	// from another holder: it did not answer for as long as WithOutageLimit
	// allows, or not at the one attempt of a try. It says nothing about who
	// holds the lock. What the database said is wrapped.
	ErrUnavailable = errors.New("registry: database unavailable")

	// ErrCapacity is matched when as many different locks as
	// WithCacheCapacity allows are held or waited for in this process.
	ErrCapacity = errors.New("registry: too many locks in use")

	// ErrClosed is matched by lock calls on a closed registry, and by the
	// *LostError of holds that Close took away.
	ErrClosed = errors.New("registry: closed")

	// ErrReleased is the cause of Hold.Context after an ordinary Unlock.
	ErrReleased = errors.New("registry: lock released")

	// ErrInvalid is matched by errors about an option or a key.
	ErrInvalid = errors.New("registry: invalid argument")
)

// NotAcquiredError says who kept the lock from being acquired, as far as is
// known. It matches ErrNotAcquired and, if a context ended the wait, that
// context's error and cause.
type NotAcquiredError struct {
	Key string
	// Waited is how long the call waited.
	Waited time.Duration
	// ClientID and Holder describe the holder at the last look. Holder is "this
	// process" if another goroutine of this registry has the lock. Both are
	// empty if it is not known: after a single try on MySQL, which cannot tell
	// in the same round trip, or while others of this process are first in the
	// queue.
	ClientID, Holder string
	// Remaining is what was left of the holder's lease then; 0 if unknown.
	Remaining time.Duration
	// Cause is what ended the wait early: the context's error and cause, and
	// ErrUnavailable with the database's error if it did not answer. Nil if
	// time was up.
	Cause error

	held string // what keeps the lock from us, for the text
}

// heldBy takes note of what a refused request learned.
func (e *NotAcquiredError) heldBy(out repository.Outcome) {
	e.ClientID, e.Holder, e.Remaining = out.ClientID, out.Holder, out.Remaining
	switch {
	case e.Holder != "":
		e.held = "held by " + e.Holder
	case e.ClientID != "":
		e.held = "held by client " + e.ClientID
	default:
		e.held = "held by another"
	}
}

func (e *NotAcquiredError) Error() string {
	text := fmt.Sprintf("registry: lock %s not acquired", quote(e.Key))
	if e.Waited > 0 {
		text += fmt.Sprintf(" after %v", e.Waited.Round(time.Millisecond))
	}
	if e.held != "" {
		text += ": " + e.held
	}
	if e.Remaining > 0 {
		text += fmt.Sprintf(" for up to %v more", e.Remaining.Round(time.Millisecond))
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is implements the match with ErrNotAcquired.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns what ended the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Cause }

// quote shortens a key for an error text; keys may be of any length.
func quote(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%.80q... (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
