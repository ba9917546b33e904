package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/intlock/intlock/repository"
)

// drop ends one hold. With the last one the lease is handed to the next in the
// queue, or given back.
func (g *grant) drop(ctx context.Context, h *Hold) error {
	r, now := g.registry, time.Now()
	r.mu.Lock()
	g.mu.Lock()
	if !g.sound(now) {
		g.mu.Unlock()
		r.mu.Unlock()
		g.checkAt(now) // which reports it
		r.mu.Lock()
		g.mu.Lock()
	}
	lost := g.lost
	if i := slices.Index(g.members, h); i >= 0 {
		g.members = slices.Delete(g.members, i, i+1)
	}
	contexts := h.contexts
	h.contexts = nil
	last := len(g.members) == 0
	handed := last && lost == nil && g.keptUntil.IsZero() && g.handOver(now)
	first := last && !handed && g.takeBack()
	end := now.Add(min(max(g.trust.ttl, time.Second), longestStatement))
	g.mu.Unlock()
	r.mu.Unlock()
	for cancel := range contexts {
		(*cancel)(ErrReleased)
	}
	switch {
	case handed:
		return nil
	case last:
		return g.giveBack(ctx, end, first, true, lost, now)
	case lost != nil:
		return lost
	}
	return nil
}

// takeBack begins to give the lease back, and reports whether the caller is the
// first: then it has to call giveBack. From here on nobody finds a loss but
// giveBack. The caller holds g.mu.
func (g *grant) takeBack() bool {
	if g.returning {
		return false
	}
	g.returning = true
	return true
}

// giveBack returns the lease to the database and the local turn to the queue,
// once; if the caller is not the first it gets the first one's result. The turn
// goes on in any case: nobody in this process should wait for a database that is
// away. If it is not the holder who gives back, but Close, the holder may work
// on, and what the row showed says nothing about that. lost is what was found
// before, at now. The database has time until end; ctx carries values.
func (g *grant) giveBack(ctx context.Context, end time.Time, first, byHolder bool, lost *LostError, now time.Time) error {
	g.kept.Forget()
	if !first {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
		defer cancel()
		select {
		case <-g.done():
			return g.result
		case <-ctx.Done():
			return unavailable("give back", g.key, contextCause(ctx))
		}
	}

	g.mu.Lock()
	keep := g.keptUntil
	g.mu.Unlock()
	if lost != nil {
		keep = time.Time{}
	}
	deleted, doubt, err := g.delete(ctx, end, keep)
	switch {
	case err == nil:
	case errors.Is(err, repository.ErrTransient):
		g.failure = unavailable("give back", g.key, err)
	default:
		g.failure = fmt.Errorf("registry: give back lock %s: %w", quote(g.key), err)
	}
	switch {
	case lost != nil && deleted && byHolder && !g.attempt.ghost:
		untaken := *lost
		untaken.Untaken = true
		g.result = &untaken
	case lost != nil && g.failure == nil && !deleted && lost.ClientID == "":
		found, known := g.diagnose(ctx), *lost
		known.ClientID, known.Holder = found.ClientID, found.Holder
		g.result = &known
	case lost != nil:
		g.result = errors.Join(lost, g.failure)
	case g.failure != nil:
		g.result = g.failure
	case !deleted && !doubt:
		loss := g.diagnose(ctx)
		g.mu.Lock()
		g.result = g.tell(loss)
	}
	g.mu.Lock()
	longest := g.longest
	g.mu.Unlock()
	if g.failure != nil && !keep.IsZero() {
		g.attempt.over.Store(true) // to delete the row would free it too early
	} else {
		g.attempt.end(g.failure != nil, longest)
	}
	r := g.registry
	if !r.immediate {
		now = time.Now()
	}
	g.entry.streak.freed = now
	r.mu.Lock()
	g.entry.grant = nil
	r.passTurn(g.entry)
	r.unuse(g.entry, now)
	g.end()
	r.mu.Unlock()
	return g.result
}

// end says that the lease is not this grant's any more. The caller holds
// registry.mu.
func (g *grant) end() {
	g.ended = true
	if g.returned != nil {
		close(g.returned)
	}
}

// done is closed when the lease is not this grant's any more.
func (g *grant) done() <-chan struct{} {
	g.registry.mu.Lock()
	defer g.registry.mu.Unlock()
	if g.returned == nil {
		g.returned = make(chan struct{})
		if g.ended {
			close(g.returned)
		}
	}
	return g.returned
}

// failedToReturn is what kept the lease from being given back, nil if nothing.
func (g *grant) failedToReturn() error {
	g.registry.mu.Lock()
	defer g.registry.mu.Unlock()
	if g.ended {
		return g.failure
	}
	return unavailable("give back", g.key, errNoAnswer) // its holder's own Unlock is still at it
}

// delete deletes the row, or has it stay until keep, trying again until end while
// the database does not answer. doubt says that an earlier try may have deleted it: then "not there"
// does not mean "lost".
func (g *grant) delete(ctx context.Context, end, keep time.Time) (deleted, doubt bool, err error) {
	if g.registry.immediate && keep.IsZero() {
		deleted, err = g.registry.repo.Delete(context.Background(), g.attempt.lease)
		return deleted, false, err
	}
	var pauses backoff
	for {
		// A third of the time for each try: a dead connection is not the end.
		limit := max(min(longestStatement/3, time.Until(end)), time.Millisecond)
		if left := time.Until(keep); left >= repository.MinTTL {
			deleted, err = g.registry.endAfter(ctx, g.attempt.lease, left, limit)
		} else {
			deleted, err = g.registry.delete(ctx, g.attempt.lease, limit)
		}
		if err == nil || !errors.Is(err, repository.ErrTransient) {
			return deleted, doubt, err
		}
		doubt = doubt || unknown(err)
		waiting, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
		inTime := sleep(waiting, pauses.next())
		cancel()
		if !inTime {
			return false, doubt, err
		}
	}
}

// diagnose finds out what became of a row that is not this lease's any more, by
// a renewal that cannot succeed.
func (g *grant) diagnose(ctx context.Context) LostError {
	const limit = time.Second
	answers, err := await(ask(ctx, g.registry, limit, func(ctx context.Context) ([]repository.LeaseStatus, error) {
		return g.registry.repo.Renew(ctx, []repository.Lease{g.attempt.lease}, g.terms.ttl)
	}), limit, nil, nil)
	if err != nil || len(answers) == 0 {
		return LostError{Reason: LossGone}
	}
	return lossOf(answers[0])
}

func unavailable(verb, key string, err error) error {
	return fmt.Errorf("%w: %s lock %s: %w", ErrUnavailable, verb, quote(key), err)
}
