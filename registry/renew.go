package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/intlock/intlock/renew"
	"github.com/intlock/intlock/repository"
)

// keepAlive is the one request of the scheduler: it renews grants for ttl.
func (r *JdbcLockRegistry) keepAlive(ctx context.Context, grants []*grant, ttl time.Duration) ([]renew.Verdict, error) {
	leases := make([]repository.Lease, len(grants))
	for i, g := range grants {
		leases[i] = g.attempt.lease
	}
	limit := longestStatement
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end)
	}
	asked := trust{time.Now(), ttl}
	answers := ask(ctx, r, limit, func(ctx context.Context) ([]repository.LeaseStatus, error) {
		return r.repo.Renew(ctx, leases, ttl)
	})
	statuses, err := await(answers, limit, nil, nil)
	if errors.Is(err, errNoAnswer) {
		r.background.run(func() { // it may come yet, and then it counts from when it was asked
			if late := <-answers; late.err == nil {
				take(grants, asked, late.value)
			}
		})
	}
	if err != nil {
		for _, g := range grants {
			g.failed(err)
		}
		r.renewals.warn(r.config.logger.Warn, len(grants), err)
		return nil, err
	}
	return take(grants, asked, statuses), nil
}

// take tells grants what an answer says of them, as far as it goes.
func take(grants []*grant, asked trust, statuses []repository.LeaseStatus) []renew.Verdict {
	verdicts := make([]renew.Verdict, min(len(grants), len(statuses)))
	for i := range verdicts {
		switch err := grants[i].renewed(asked, statuses[i]); {
		case err == nil:
			verdicts[i] = renew.Kept
		case errors.Is(err, errRowLocked):
			verdicts[i] = renew.Again
		default:
			verdicts[i] = renew.Over
		}
	}
	return verdicts
}

// failed takes note of a renewal that came to nothing.
func (g *grant) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble, g.troubled = err, time.Now()
}

// renewed takes note of a renewal's answer.
func (g *grant) renewed(asked trust, status repository.LeaseStatus) error {
	if lost := g.check(); lost != nil {
		return lost // the answer came after the end; a reported loss stays one
	}
	var err error
	switch status.State {
	case repository.LeaseStands:
	case repository.LeaseBusy:
		err = errRowLocked
	default:
		if lost := g.lose(lossOf(status)); lost != nil {
			return lost
		}
		// An Unlock was faster: no row is not a loss then.
		return fmt.Errorf("%w: renew %s", ErrNotHeld, quote(g.key))
	}
	g.mu.Lock()
	g.trouble, g.troubled = err, time.Now()
	// A renewal never shortens a lease, so the later of two ends is good.
	asked.ttl = min(asked.ttl, status.Remaining)
	if asked.remaining() > g.trust.remaining() {
		g.trust = asked
	}
	g.mu.Unlock()
	if lost := g.check(); lost != nil {
		return lost
	}
	return err
}

var errRowLocked = fmt.Errorf("%w: %w: a transaction has locked the row", repository.ErrTransient, repository.ErrNotExecuted)

// lossOf is what the row shows when it is not this lease's any more.
func lossOf(status repository.LeaseStatus) LostError {
	switch status.State {
	case repository.LeaseTaken:
		return LostError{Reason: LossTaken, ClientID: status.ClientID, Holder: status.Holder}
	case repository.LeaseDeleted:
		return LostError{Reason: LossDeleted}
	case repository.LeaseExpired:
		return LostError{Reason: LossExpired}
	}
	return LostError{Reason: LossGone}
}

// renew is Hold.Renew: it asks for a later end of the lease, again and again
// while the database does not answer and the lease still stands.
func (g *grant) renew(ctx context.Context, opts []LockOption) error {
	c, err := g.registry.newCall(opts)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.longest = max(g.longest, c.ttl)
	if g.renewing == nil {
		g.renewing = make(chan struct{}, 1)
	}
	turn := g.renewing
	g.mu.Unlock()
	turn <- struct{}{}
	defer func() { <-turn }()

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
		if err == nil {
			err = g.renewed(asked, answers[0])
		}
		switch {
		case err == nil:
			g.kept.Changed()
			return nil
		case errors.Is(err, ErrLockLost), errors.Is(err, ErrNotHeld):
			return err
		case !errors.Is(err, repository.ErrTransient):
			return fmt.Errorf("registry: renew lock %s: %w", quote(g.key), err)
		case !sleep(ctx, min(pauses.next(), g.remaining()/4)): // not beyond the end
			return unavailable("renew", g.key, err)
		}
	}
}

// complaint logs what goes wrong again and again, but not every time.
type complaint struct {
	mu   sync.Mutex
	last time.Time
}

const complaintPause = 5 * time.Second

func (c *complaint) warn(log func(msg string, args ...any), leases int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) > complaintPause {
		c.last = time.Now()
		go log("leases not renewed, trying on", "leases", leases, "error", err) // which may block
	}
}
