package registry

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/intlock/intlock/renew"
	"github.com/intlock/intlock/repository"
)

// grant is one lease of this process, from the answer of the database, or from
// the goroutine that had it before, to its return. One or, by re-entrance,
// several holds share it. It is one piece of memory, as there is one for every
// lock call.
type grant struct {
	registry *JdbcLockRegistry
	entry    *entry
	key      string
	attempt  *attempt
	token    int64 // 0 if the repository draws none
	handed   int   // how often the lease was handed on since the database granted it
	terms    terms
	began    time.Time
	kept     renew.Entry[*grant]

	claim attempt // what attempt points to, unless the lease was handed on
	first Hold
	one   [1]*Hold // what members begins with

	mu        sync.Mutex // guards the fields below; never held while anything waits
	trust     trust
	trouble   error // why the last renewal failed; nil once one has worked
	troubled  time.Time
	warned    bool // of the end, and not renewed since
	verified  bool // a transaction may go by this lease, see Hold.Verify
	lost      *LostError
	members   []*Hold       // not unlocked yet
	longest   time.Duration // TTL ever asked for: what a row may still have
	keptUntil time.Time     // for UnlockAfter; zero else
	returning bool          // giveBack has begun, or the lease was handed on
	renewing  chan struct{} // one Hold.Renew at a time: a token is in it while one runs; nil before the first

	// Written by giveBack, which runs once, before ended is set.
	result  error // what Unlock says
	failure error // what kept the lease from being given back

	ended    bool          // it is done; guarded by registry.mu, as the next one is
	returned chan struct{} // closed when ended is set; nil if nobody waits for it
}

// begin makes the grant known, as it is at now. The caller holds registry.mu:
// nobody finds the grant, and no warning comes, before it is complete.
func (g *grant) begin(t trust, now time.Time) *Hold {
	hold := &g.first
	hold.grant = g
	g.one[0] = hold
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trust, g.longest, g.members = t, max(g.longest, t.ttl), g.one[:]
	g.entry.grant = g
	g.registry.keeper.Keep(&g.kept, g, g.state(now), now)
	return hold
}

// left is how long the lease can be relied on, and how long the hold may use
// it: the end of its maximum time may come first. The caller holds g.mu.
func (g *grant) left(now time.Time) (lease, hold time.Duration) {
	lease = g.trust.at(now)
	if g.terms.maxHold > 0 {
		return lease, min(lease, g.terms.maxHold-between(g.began, now))
	}
	return lease, lease
}

func (g *grant) remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, left := g.left(time.Now())
	return left
}

// check reads the clocks and returns the loss, nil while the lease stands. It
// finds no loss while the lease is given back: that is giveBack's to find.
func (g *grant) check() *LostError { return g.checkAt(time.Now()) }

func (g *grant) checkAt(now time.Time) *LostError {
	g.mu.Lock()
	if g.lost != nil || g.sound(now) {
		defer g.mu.Unlock()
		return g.lost
	}
	lease, _ := g.left(now)
	end := LostError{Reason: LossExpired, Err: g.trouble}
	switch {
	case lease > 0:
		end = LostError{Reason: LossMaxHold}
	case elapsed(g.troubled) > g.terms.ttl/2: // it would have been tried again since
	case errors.Is(g.trouble, errRowLocked):
		end = LostError{Reason: LossBlocked}
	case errors.Is(g.trouble, repository.ErrTransient):
		end.Reason = LossUnreachable
	}
	return g.tell(end)
}

// sound reports that there is no loss to be found. The caller holds g.mu.
func (g *grant) sound(now time.Time) bool {
	_, left := g.left(now)
	return g.lost == nil && (g.returning || left > 0)
}

// lose records what somebody has found out about the row. It returns nil if the
// lease is being given back.
func (g *grant) lose(loss LostError) *LostError {
	g.mu.Lock()
	if g.lost != nil || g.returning {
		defer g.mu.Unlock()
		return g.lost
	}
	return g.tell(loss)
}

// tell records the loss, which is the first, ends the contexts, and calls the
// handler, on a goroutine of its own, as it may call back into the registry.
// The caller has found no earlier loss, and holds g.mu, which tell unlocks.
func (g *grant) tell(loss LostError) *LostError {
	lost := &loss
	lost.Key = g.key
	g.lost = lost
	g.mu.Unlock()
	g.endContexts(lost)
	go g.registry.config.onLost(lost)
	return lost
}

func (g *grant) endContexts(cause error) {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	for _, h := range members {
		h.endContexts(cause)
	}
}

func (g *grant) isReturning() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.returning
}

// keepFor has the row stay for at least d when the lease is given back.
func (g *grant) keepFor(d time.Duration) {
	if d <= 0 {
		return
	}
	until := time.Now().Add(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.keptUntil) {
		g.keptUntil = until
	}
}

// Key implements renew.Lease.
func (g *grant) Key() string { return g.attempt.lease.Key }

// Look implements renew.Lease: it notices the end of the lease.
func (g *grant) Look() (renew.State, bool) {
	if g.check() != nil {
		return renew.State{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.returning {
		return renew.State{}, false
	}
	return g.state(time.Now()), true
}

// state is what Look says, and warns of the end. The caller holds g.mu.
func (g *grant) state(now time.Time) renew.State {
	lease, left := g.left(now)
	state := renew.State{Remaining: lease, Next: left}
	if g.terms.renewal && left == lease { // else it lasts longer than the hold may
		state.TTL = g.terms.ttl
	}
	if g.terms.warn != nil {
		before := min(g.terms.warnBefore, g.terms.ttl/2)
		switch {
		case left > before:
			g.warned = false
			state.Next = left - before
		case !g.warned && len(g.members) > 0:
			g.warned = true
			go g.terms.warn(g.members[0])
		}
	}
	return state
}
