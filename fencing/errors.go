package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrStaleToken is matched by the refusal of a writer whose lock has been
	// granted to somebody else since; the error is a [*StaleTokenError]. It is
	// final: a token never becomes valid again. Roll back and stop.
	ErrStaleToken = errors.New("fencing: stale token")

	// ErrNoResource is matched when a [ColumnGuard] finds no row with the key.
	// Nothing was written.
	ErrNoResource = errors.New("fencing: no such resource")

	// ErrInvalid is matched by errors about an argument: a name, a key, a
	// token. Nothing was sent to the database.
	ErrInvalid = errors.New("fencing: invalid argument")
)

// StaleTokenError tells which token was refused and why. It wraps no error of
// a driver, so that code which repeats transactions after deadlocks and the
// like does not repeat this one.
type StaleTokenError struct {
	Resource  string // the resource's name, for a ColumnGuard the key as text
	Presented int64  // the token of the writer that was refused
	Highest   int64  // the highest token the resource has seen
}

func (e *StaleTokenError) Error() string {
	return fmt.Sprintf("fencing: stale token %d for resource %s: a later holder presented %d; this holder has lost its lock and must stop",
		e.Presented, quote(e.Resource), e.Highest)
}

// Is makes the error match ErrStaleToken.
func (e *StaleTokenError) Is(target error) bool { return target == ErrStaleToken }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// quote shortens a bad value for an error text.
func quote(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.60q... (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}
