package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/intlock/intlock/repository"
)

// grant is one lease of this process, from the answer of the database to its
// return. One or, by re-entrance, several holds share it.
type grant struct {
	registry *JdbcLockRegistry
	entry    *entry
	key      string
	attempt  *attempt
	token    int64         // 0 if the repository draws none
	renewing chan struct{} // one renewal at a time; a token is in it while one runs
	returned chan struct{} // closed when the lease was given back, or could not be

	mu        sync.Mutex // guards the fields below; never held while anything waits
	trust     trust
	lost      *LostError
	members   []*Hold // not unlocked yet
	timer     *time.Timer
	longest   time.Duration // TTL ever asked for: what a row may still have
	returning bool          // giveBack has begun

	// Written by giveBack before returned is closed.
	result  error // what Unlock says
	failure error // what kept the lease from being given back
}

func newGrant(r *JdbcLockRegistry, e *entry, key string, a *attempt, token int64, t trust) *grant {
	g := &grant{
		registry: r, entry: e, key: key, attempt: a, token: token, trust: t, longest: t.ttl,
		renewing: make(chan struct{}, 1), returned: make(chan struct{}),
	}
	g.members = []*Hold{{grant: g}}
	return g
}

func (g *grant) remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trust.remaining()
}

// check reads the clocks and returns the loss, nil while the lease stands.
func (g *grant) check() *LostError {
	g.mu.Lock()
	lost, over := g.lost, g.trust.remaining() <= 0 && !g.returning
	g.mu.Unlock()
	if lost == nil && over {
		return g.lose(LossExpired)
	}
	return lost
}

// lose records the loss, once: ends the contexts and tells the handler, on a
// goroutine of its own, as it may call back into the registry.
func (g *grant) lose(reason LossReason) *LostError {
	g.mu.Lock()
	if g.lost != nil {
		defer g.mu.Unlock()
		return g.lost
	}
	lost := &LostError{Key: g.key, Reason: reason}
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

// watch starts the timer that ends the contexts when the lease does. A grant
// whose holder asked for no context needs none: it has nothing to end.
// The caller holds g.mu.
func (g *grant) watch() {
	if g.timer == nil && !g.returning {
		g.timer = time.AfterFunc(g.nextLook(), g.look)
	}
}

func (g *grant) look() {
	if g.check() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.returning {
		g.timer.Reset(g.nextLook())
	}
}

// nextLook is at most a second away: timers stand still while a machine is
// suspended, and the wall clock has to be looked at.
func (g *grant) nextLook() time.Duration {
	return min(max(g.trust.remaining(), time.Millisecond), time.Second)
}

// renew asks for a later end of the lease, again and again while the database
// does not answer and the lease still stands.
func (g *grant) renew(ctx context.Context, opts []LockOption) error {
	c, err := g.registry.newCall(opts)
	if err != nil {
		return err
	}
	g.renewing <- struct{}{}
	defer func() { <-g.renewing }()
	g.mu.Lock()
	g.longest = max(g.longest, c.ttl)
	g.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(statementLimit(c.ttl), max(0, g.remaining())))
	defer cancel()
	var pauses backoff
	for {
		if lost := g.check(); lost != nil {
			return lost
		}
		if g.isReturning() {
			return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(g.key))
		}
		asked := trust{time.Now(), c.ttl}
		// A third of the time for each try: a dead connection is not the end.
		limit := max(min(statementLimit(c.ttl), g.remaining())/3, time.Millisecond)
		answers, err := await(ask(ctx, g.registry, limit, func(ctx context.Context) ([]repository.LeaseStatus, error) {
			return g.registry.repo.Renew(ctx, []repository.Lease{g.attempt.lease}, c.ttl)
		}), limit, nil, nil)
		if err == nil && answers[0].State == repository.LeaseBusy {
			err = errRowLocked
		}
		switch {
		case err == nil:
			return g.renewed(asked, answers[0].State == repository.LeaseStands)
		case !errors.Is(err, repository.ErrTransient):
			return fmt.Errorf("registry: renew lock %s: %w", quote(g.key), err)
		case !sleep(ctx, pauses.next()):
			return unavailable("renew", g.key, err)
		}
	}
}

var errRowLocked = fmt.Errorf("%w: %w: a transaction has locked the row", repository.ErrTransient, repository.ErrNotExecuted)

func (g *grant) isReturning() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.returning
}

// renewed takes note of a renewal's answer.
func (g *grant) renewed(asked trust, ok bool) error {
	if lost := g.check(); lost != nil {
		return lost // the answer came after the end; a reported loss stays one
	}
	if g.isReturning() { // an Unlock was faster: no row is not a loss then
		return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(g.key))
	}
	if !ok {
		return g.lose(LossGone)
	}
	g.mu.Lock()
	// A renewal never shortens a lease, so the later of two ends is good.
	if asked.remaining() > g.trust.remaining() {
		g.trust = asked
	}
	g.mu.Unlock()
	if lost := g.check(); lost != nil {
		return lost
	}
	return nil
}

// drop ends one hold, and gives the lease back with the last one.
func (g *grant) drop(ctx context.Context, h *Hold) error {
	lost := g.check()
	g.mu.Lock()
	g.members = slices.DeleteFunc(g.members, func(m *Hold) bool { return m == h })
	last := len(g.members) == 0
	limit := min(max(g.trust.ttl, time.Second), longestStatement)
	g.mu.Unlock()
	h.endContexts(ErrReleased)
	if last {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return g.giveBack(ctx, true)
	}
	if lost != nil {
		return lost
	}
	return nil
}

// giveBack returns the lease to the database and the local turn to the queue,
// once; a second caller gets the result of the first. The turn goes on in any
// case: nobody in this process should wait for a database that is away. If it
// is not the holder who gives back, but Close, the holder may work on, and what
// the row showed says nothing about that.
func (g *grant) giveBack(ctx context.Context, byHolder bool) error {
	lost := g.check()
	g.mu.Lock()
	first := !g.returning
	g.returning = true
	longest := g.longest
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	if !first {
		select {
		case <-g.returned:
			return g.result
		case <-ctx.Done():
			return unavailable("give back", g.key, contextCause(ctx))
		}
	}

	deleted, doubt, err := g.delete(ctx)
	switch {
	case err == nil:
	case errors.Is(err, repository.ErrTransient):
		g.failure = unavailable("give back", g.key, err)
	default:
		g.failure = fmt.Errorf("registry: give back lock %s: %w", quote(g.key), err)
	}
	switch {
	case lost != nil && deleted && byHolder && lost.Reason == LossExpired && !g.attempt.ghost:
		untaken := *lost
		untaken.Untaken = true
		g.result = &untaken
	case lost != nil:
		g.result = errors.Join(lost, g.failure)
	case g.failure != nil:
		g.result = g.failure
	case !deleted && !doubt:
		g.result = g.lose(LossGone)
	}
	g.attempt.end(g.failure != nil, longest)
	r := g.registry
	g.entry.streak.freed = time.Now()
	r.mu.Lock()
	g.entry.grant = nil
	r.passTurn(g.entry)
	r.unuse(g.entry)
	r.mu.Unlock()
	close(g.returned)
	return g.result
}

// failedToReturn is what kept the lease from being given back, nil if nothing.
func (g *grant) failedToReturn() error {
	select {
	case <-g.returned:
		return g.failure
	default: // its holder's own Unlock is still at it
		return unavailable("give back", g.key, errNoAnswer)
	}
}

// delete deletes the row, trying again while the database does not answer.
// doubt says that an earlier try may have deleted it: then "not there" does
// not mean "lost".
func (g *grant) delete(ctx context.Context) (deleted, doubt bool, err error) {
	var pauses backoff
	for {
		limit := longestStatement
		if end, ok := ctx.Deadline(); ok {
			limit = max(min(limit, time.Until(end)), time.Millisecond)
		}
		deleted, err = g.registry.delete(ctx, g.attempt.lease, limit)
		if err == nil || !errors.Is(err, repository.ErrTransient) {
			return deleted, doubt, err
		}
		doubt = doubt || unknown(err)
		if !sleep(ctx, pauses.next()) {
			return false, doubt, err
		}
	}
}

func unavailable(verb, key string, err error) error {
	return fmt.Errorf("%w: %s lock %s: %w", ErrUnavailable, verb, quote(key), err)
}
