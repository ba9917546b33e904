package registry

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/intlock/intlock/renew"
	"github.com/intlock/intlock/repository"
)

// grant is one lease of this process, from the answer of the database to its
// return. One or, by re-entrance, several holds share it.
type grant struct {
	registry *JdbcLockRegistry
	entry    *entry
	key      string
	attempt  *attempt
	token    int64 // 0 if the repository draws none
	terms    terms
	began    time.Time
	kept     *renew.Entry[*grant]
	renewing chan struct{} // one Hold.Renew at a time; a token is in it while one runs
	returned chan struct{} // closed when the lease was given back, or could not be

	mu        sync.Mutex // guards the fields below; never held while anything waits
	trust     trust
	trouble   error // why the last renewal failed; nil once one has worked
	troubled  time.Time
	warned    bool // of the end, and not renewed since
	lost      *LostError
	members   []*Hold       // not unlocked yet
	longest   time.Duration // TTL ever asked for: what a row may still have
	returning bool          // giveBack has begun

	// Written by giveBack before returned is closed.
	result  error // what Unlock says
	failure error // what kept the lease from being given back
}

func newGrant(r *JdbcLockRegistry, e *entry, key string, a *attempt, token int64, t trust, terms terms) *Hold {
	g := &grant{
		registry: r, entry: e, key: key, attempt: a, token: token, terms: terms, began: t.sent, trust: t, longest: t.ttl,
		renewing: make(chan struct{}, 1), returned: make(chan struct{}),
	}
	hold := &Hold{grant: g}
	g.members = []*Hold{hold}
	r.mu.Lock() // nobody finds the grant, and no warning comes, before it is complete
	defer r.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	e.grant = g
	g.kept = r.keeper.Keep(g, g.state())
	return hold
}

// left is how long the lease can be relied on, and how long the hold may use
// it: the end of its maximum time may come first. The caller holds g.mu.
func (g *grant) left() (lease, hold time.Duration) {
	lease = g.trust.remaining()
	if g.terms.maxHold > 0 {
		return lease, min(lease, g.terms.maxHold-elapsed(g.began))
	}
	return lease, lease
}

func (g *grant) remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, left := g.left()
	return left
}

// check reads the clocks and returns the loss, nil while the lease stands. It
// finds no loss while the lease is given back: that is giveBack's to find.
func (g *grant) check() *LostError {
	g.mu.Lock()
	lease, left := g.left()
	if g.lost != nil || g.returning || left > 0 {
		defer g.mu.Unlock()
		return g.lost
	}
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
	return g.state(), true
}

// state is what Look says, and warns of the end. The caller holds g.mu.
func (g *grant) state() renew.State {
	lease, left := g.left()
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
