package leader

// Kind says what an Event is about.
type Kind int

const (
	Granted     Kind = iota + 1 // this elector is the leader; Token is set if there are tokens
	Revoked                     // it is no more; Err is set if the lease was lost
	Unavailable                 // the database has not answered for a while; Err says how
)

func (k Kind) String() string {
	switch k {
	case Granted:
		return "granted"
	case Revoked:
		return "revoked"
	case Unavailable:
		return "unavailable"
	}
	return "unknown"
}

// Event is something that happened to an elector.
type Event struct {
	Kind  Kind
	Role  string
	Token int64
	Err   error
}

func (e *Elector) tell(event Event) {
	if e.onEvent != nil {
		event.Role = e.role
		e.onEvent(event)
	}
}
