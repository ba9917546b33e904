package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The time Close gives to holders to stop by themselves, to the database to
// take leases back whatever its context says, and altogether; and how many
// leases it gives back at once.
const (
	closeGrace    = time.Second
	closeLimit    = 10 * time.Second
	closeParallel = 8
)

// Close ends the registry. Lock calls, waiting ones too, fail with ErrClosed.
// The contexts of holds end, and Close waits for their holders to unlock: a
// second at most, or half of the time that ctx has. Then it gives back what is
// still held, lease by lease, and the Unlock of such a hold returns
// ErrLockLost. This it does even if ctx has ended, for at least a second.
// Locks of other registries are never touched, even under the same client id.
//
// It returns the errors of leases that could not be given back; those end with
// their TTL. All of it takes about ten seconds at most. The repository stays
// open.
func (r *JdbcLockRegistry) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return contextCause(ctx)
		}
	}
	r.closed = true
	close(r.closing)
	var held []*grant
	for _, e := range r.cache.entries {
		if e.grant != nil {
			held = append(held, e.grant)
		}
	}
	r.mu.Unlock()
	defer close(r.done)
	defer r.background.stop()
	defer r.shut()

	for _, g := range held {
		g.endContexts(closedError(g.key))
	}
	left := closeLimit
	if end, ok := ctx.Deadline(); ok {
		left = min(left, max(time.Until(end), 0))
	}
	if ctx.Err() != nil {
		left = 0
	}
	grace, stop := context.WithTimeout(ctx, min(closeGrace, left/2))
	defer stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(left, left/2+closeGrace))
	defer cancel()
	errs := r.takeBack(held, grace, last)
	r.keeper.Stop()
	r.background.wait(last)
	return errors.Join(errs...)
}

// takeBack gives back the grants whose holders have not done so when grace
// ends, several at once, as one may hang.
func (r *JdbcLockRegistry) takeBack(held []*grant, grace, last context.Context) []error {
	var (
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	next := make(chan *grant)
	for range min(closeParallel, len(held)) {
		all.Go(func() {
			for g := range next {
				lost := g.lose(LostError{Reason: LossClosed}) // unless its holder is giving it back just now
				if last.Err() == nil {
					g.mu.Lock()
					first := g.takeBack()
					g.mu.Unlock()
					end, _ := last.Deadline()
					g.giveBack(last, end, first, false, lost, time.Now())
				}
				if err := g.failedToReturn(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, g := range held {
		select {
		case <-g.done():
			continue
		case <-grace.Done():
		}
		next <- g
	}
	close(next)
	all.Wait()
	return errs
}

func (r *JdbcLockRegistry) isClosing() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

func closedError(key string) error {
	return fmt.Errorf("%w: lock %s", ErrClosed, quote(key))
}
