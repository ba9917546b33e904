package registry

import "fmt"

// LossReason says how a lease was lost.
type LossReason string

const (
	// LossExpired: the lease's trusted time ran out. Either nobody renewed it,
	// or the process was stopped meanwhile, or a clock jumped; Err is set if a
	// renewal had failed for good.
	LossExpired LossReason = "the lease ran out"
	// LossTaken: the row is another lease's. ClientID and Holder say whose.
	LossTaken LossReason = "it was taken over"
	// LossDeleted: somebody deleted the row.
	LossDeleted LossReason = "its row was deleted"
	// LossGone: the row is not this lease's any more, and what became of it
	// could not be found out.
	LossGone LossReason = "its row was taken over or deleted"
	// LossUnreachable: the lease ran out while the database did not answer its
	// renewals. Err is what came instead of an answer.
	LossUnreachable LossReason = "the lease ran out while the database did not answer"
	// LossBlocked: the lease ran out while a transaction had its row locked,
	// so that it could not be renewed. If that was the holder's own, see
	// fencing.AssertHeld, what it commits is safe nevertheless.
	LossBlocked LossReason = "the lease ran out while a transaction had its row locked"
	// LossMaxHold: it was held for longer than WithMaxHold allows.
	LossMaxHold LossReason = "it was held for its maximum time"
	// LossClosed: the registry was closed.
	LossClosed LossReason = "the registry was closed"
)

// LostError says that a lease ended before its holder gave it back, and how.
// It matches ErrLockLost, and ErrClosed if the registry's Close was the reason.
type LostError struct {
	Key    string
	Reason LossReason
	// ClientID and Holder say who has the lock now, or had it when that was
	// looked up; empty if nobody is known. Unlock may know more than the cause
	// of the context did, which ended before anybody took over.
	ClientID, Holder string
	// Err is why the lease was not renewed, if that is known. It is wrapped.
	Err error
	// Untaken is set by the Unlock that found the row still in place after the
	// lease had run out: nobody else has held the lock up to that moment. It
	// is not set where a late request may have put the row back.
	Untaken bool
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("registry: lock %s lost: %s", quote(e.Key), e.Reason)
	switch {
	case e.Holder != "":
		text += " (the holder is now " + e.Holder + ")"
	case e.ClientID != "":
		text += " (the holder is now client " + e.ClientID + ")"
	}
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	if e.Untaken {
		return text + "; nobody took it before it was given back"
	}
	return text + "; what it protects may have been changed by another holder"
}

// Is implements the match with ErrLockLost and ErrClosed.
func (e *LostError) Is(target error) bool {
	return target == ErrLockLost || target == ErrClosed && e.Reason == LossClosed
}

// Unwrap returns why the lease was not renewed.
func (e *LostError) Unwrap() error { return e.Err }
