package registry

import "time"

// trust is how long a process believes in a lease. The database alone decides
// when it ends; the process only has to stop believing earlier. So its time
// counts from before the request was sent, when the database cannot have
// granted the lease yet, and ends a margin early.
type trust struct {
	sent time.Time
	ttl  time.Duration
}

// remaining is what is left, negative when the lease is not trusted any more.
func (t trust) remaining() time.Duration { return t.at(time.Now()) }

// at is what is, or was, left at a moment.
func (t trust) at(now time.Time) time.Duration { return t.ttl - margin(t.ttl) - between(t.sent, now) }

// margin is the part of a lease that its holder does not use: room for clocks
// that run at different speeds and for work that takes a moment to stop.
func margin(ttl time.Duration) time.Duration { return min(ttl/20, time.Second) }

// elapsed takes the larger of two readings. The monotonic clock stands still
// while a machine is suspended, the wall clock can be set back: neither may
// make a lease look younger than it is.
func elapsed(since time.Time) time.Duration { return between(since, time.Now()) }

func between(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// longestStatement bounds every statement, and how long an Unlock may take.
const longestStatement = 5 * time.Second

// statementLimit bounds one statement: an answer that comes after the lease it
// is about has ended is of no use.
func statementLimit(ttl time.Duration) time.Duration { return min(ttl-margin(ttl), longestStatement) }
