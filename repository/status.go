package repository

import "time"

// LeaseState says what has become of a lease.
type LeaseState int

const (
	// LeaseStands: the row is this lease's and its time has not passed. As
	// Renew's answer: it has been prolonged.
	LeaseStands LeaseState = iota + 1
	// LeaseBusy: the row is this lease's and its time has not passed, but it
	// could not be prolonged, as a transaction has locked the row. Ask again.
	LeaseBusy
	// LeaseExpired: the row is still this lease's, but its time has passed.
	LeaseExpired
	// LeaseTaken: the row is another lease's.
	LeaseTaken
	// LeaseDeleted: there is no row.
	LeaseDeleted
)

func (s LeaseState) String() string {
	switch s {
	case LeaseStands:
		return "stands"
	case LeaseBusy:
		return "busy"
	case LeaseExpired:
		return "expired"
	case LeaseTaken:
		return "taken"
	case LeaseDeleted:
		return "deleted"
	}
	return "unknown"
}

// LeaseStatus is what a repository knows about a lease.
type LeaseStatus struct {
	State LeaseState
	// Remaining is how long at least the lease lasts, counted from the moment
	// the call that returned it was made. Zero unless the lease stands or is
	// busy.
	Remaining time.Duration
	// ClientID and Holder tell who has the key now, if State is LeaseTaken and
	// as far as the row says.
	ClientID, Holder string
}
