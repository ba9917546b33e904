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
	lease    repository.Lease
	ghost    bool          // a request of this attempt had an unknown outcome: it may yet arrive
	renewing chan struct{} // one renewal at a time; a token is in it while one runs
	returned chan struct{} // closed when the lease was given back, or could not be

	mu        sync.Mutex // guards the fields below; never held while anything waits
	trust     trust
	lost      *LostError
	members   []*Hold // not unlocked yet
	timer     *time.Timer
	returning bool  // giveBack has begun
	result    error // of giveBack, once returned is closed
}

func newGrant(r *JdbcLockRegistry, e *entry, key string, lease repository.Lease, t trust) *grant {
	g := &grant{
		registry: r, entry: e, key: key, lease: lease, trust: t,
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

// lose records the loss, once: ends the contexts and tells the handler.
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
	g.registry.config.onLost(lost)
	return lost
}

func (g *grant) endContexts(cause error) {
	g.mu.Lock()
	var cancels []context.CancelCauseFunc
	for _, h := range g.members {
		cancels = append(cancels, h.cancels...)
	}
	g.mu.Unlock()
	for _, cancel := range cancels {
		cancel(cause)
	}
}

// watch starts the timer that ends the contexts when the lease does. A grant
// whose holder asked for no context needs none: it has nothing to end.
// The caller holds g.mu.
func (g *grant) watch() {
	if g.timer == nil && !g.returning {
		g.timer = time.AfterFunc(max(0, g.trust.remaining()), g.tick)
	}
}

func (g *grant) tick() {
	if g.check() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.returning {
		g.timer.Reset(max(time.Millisecond, g.trust.remaining())) // renewed meanwhile
	}
}

// renew asks for a new end of the lease, again and again while the database
// does not answer and the lease still stands.
func (g *grant) renew(ctx context.Context, opts []LockOption) error {
	c, err := g.registry.newCall(opts)
	if err != nil {
		return err
	}
	g.renewing <- struct{}{}
	defer func() { <-g.renewing }()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(statementLimit(c.ttl), max(0, g.remaining())))
	defer cancel()
	var pause backoff
	for {
		if lost := g.check(); lost != nil {
			return lost
		}
		select {
		case <-g.returned:
			return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(g.key))
		default:
		}
		asked := trust{time.Now(), c.ttl}
		ok, err := ask(g.registry, ctx, func(ctx context.Context) (bool, error) {
			return g.registry.repo.Renew(ctx, g.lease, c.ttl)
		})
		if lost := g.renewed(asked, ok, err); lost != nil {
			return lost
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, repository.ErrTransient) {
			return fmt.Errorf("registry: renew lock %s: %w", quote(g.key), err)
		}
		if !pause.sleep(ctx) {
			return unavailable("renew", g.key, err)
		}
	}
}

// renewed takes note of a renewal's answer and returns the loss, if it is one.
func (g *grant) renewed(asked trust, ok bool, err error) *LostError {
	if lost := g.check(); lost != nil {
		return lost // the answer came after the end; a reported loss stays one
	}
	if err == nil && !ok {
		return g.lose(LossGone)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Without an answer the renewal may have happened: trust the earlier end.
	if err == nil || asked.remaining() < g.trust.remaining() {
		g.trust = asked
		if g.timer != nil && !g.returning {
			g.timer.Reset(max(0, asked.remaining()))
		}
	}
	return nil
}

// drop ends one hold, and gives the lease back with the last one.
func (g *grant) drop(ctx context.Context, h *Hold) error {
	lost := g.check()
	g.mu.Lock()
	g.members = slices.DeleteFunc(g.members, func(m *Hold) bool { return m == h })
	last, cancels := len(g.members) == 0, h.cancels
	g.mu.Unlock()
	for _, cancel := range cancels {
		cancel(ErrReleased)
	}
	if last {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.releaseLimit())
		defer cancel()
		return g.giveBack(ctx)
	}
	if lost != nil {
		return lost
	}
	return nil
}

// releaseLimit is how long an Unlock may take: after its TTL the lease has
// ended by itself.
func (g *grant) releaseLimit() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(g.trust.ttl, 5*time.Second)
}

// giveBack returns the lease to the database and the local turn to the queue,
// once; a second caller gets the result of the first. The turn goes on in any
// case: nobody in this process should wait for a database that is away.
func (g *grant) giveBack(ctx context.Context) error {
	lost := g.check()
	g.mu.Lock()
	if g.returning {
		g.mu.Unlock()
		<-g.returned
		return g.result
	}
	g.returning = true
	if g.timer != nil {
		g.timer.Stop()
	}
	ttl := g.trust.ttl
	g.mu.Unlock()

	deleted, doubt, err := g.delete(ctx)
	switch {
	case err != nil:
		g.registry.cleanUp(g.lease, ttl)
		if errors.Is(err, repository.ErrTransient) {
			err = unavailable("give back", g.key, err)
		} else {
			err = fmt.Errorf("registry: give back lock %s: %w", quote(g.key), err)
		}
	case g.ghost:
		g.registry.cleanUp(g.lease, ttl)
	}
	switch {
	case lost != nil && deleted:
		untaken := *lost
		untaken.Untaken = true
		g.result = &untaken
	case lost != nil:
		g.result = errors.Join(lost, err)
	case err != nil:
		g.result = err
	case !deleted && !doubt:
		g.result = g.lose(LossGone)
	}
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

// delete deletes the row, trying again while the database does not answer.
// doubt says that an earlier try may have deleted it: then "not there" does
// not mean "lost".
func (g *grant) delete(ctx context.Context) (deleted, doubt bool, err error) {
	var pause backoff
	for {
		deleted, err = ask(g.registry, ctx, func(ctx context.Context) (bool, error) {
			return g.registry.repo.Delete(ctx, g.lease)
		})
		if err == nil || !errors.Is(err, repository.ErrTransient) {
			return deleted, doubt, err
		}
		doubt = true
		if !pause.sleep(ctx) {
			return false, doubt, err
		}
	}
}

func unavailable(verb, key string, err error) error {
	return fmt.Errorf("%w: %s lock %s: %w", ErrUnavailable, verb, quote(key), err)
}
