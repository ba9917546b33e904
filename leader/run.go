package leader

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/intlock/intlock/registry"
)

// ErrRunning is returned by Run while another Run of the elector has not returned.
var ErrRunning = errors.New("leader: the elector runs already")

// outagePause is the pause after the registry has given up on a database that does
// not answer, before it is asked again.
const outagePause = time.Second

// Run takes part in the election until ctx ends, and then returns nil; a leader
// gives the lock up before, when OnGranted has returned. While the database does
// not answer it goes on trying. Other errors end it: registry.ErrClosed, one of
// the database that cannot pass, such as a missing table, a PanicError.
func (e *Elector) Run(ctx context.Context) error {
	e.mu.Lock()
	if e.running {
		e.mu.Unlock()
		return ErrRunning
	}
	e.running = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.running = false
		e.mu.Unlock()
	}()
	for ctx.Err() == nil {
		// Obtained anew each time: a registry forgets locks that nobody uses.
		hold, err := e.locks.Obtain(e.role).LockContext(ctx, registry.WithTTL(e.ttl), registry.WithRenewal(true))
		switch {
		case err == nil:
			if err := e.lead(ctx, hold); err != nil {
				return err
			}
		case ctx.Err() != nil:
		case errors.Is(err, registry.ErrUnavailable):
			e.logger.Warn("election: the database does not answer", "role", e.role, "error", err)
			e.tell(Event{Kind: Unavailable, Err: err})
			sleep(ctx, outagePause)
		default:
			return fmt.Errorf("leader: election for %s: %w", e.role, err)
		}
	}
	return nil
}

// lead is one leadership, from the grant to the end of the lease. It returns what
// ends the election.
func (e *Elector) lead(ctx context.Context, hold *registry.Hold) (err error) {
	granted, yield := context.WithCancelCause(hold.Context(ctx))
	done := make(chan struct{})
	e.mu.Lock()
	e.hold, e.yield, e.done = hold, yield, done
	e.mu.Unlock()
	e.logger.Info("leadership granted", "role", e.role, "token", hold.Token())
	e.tell(Event{Kind: Granted, Token: hold.Token()})

	panicked := protect(func() { e.granted(granted) })
	var failure error
	select {
	case failure = <-panicked:
		if failure == nil {
			<-granted.Done() // it has returned, and leads on
		}
	case <-granted.Done():
		failure = <-panicked // the lease is renewed until then, unless it is lost
	}
	cause := context.Cause(granted)
	yield(ErrYielded)
	e.mu.Lock()
	e.hold = nil
	e.mu.Unlock()
	failure = errors.Join(failure, <-protect(func() {
		if e.candidate.OnRevoked != nil {
			e.candidate.OnRevoked()
		}
	}))
	unlock := hold.Unlock(ctx)
	e.mu.Lock()
	e.yield, e.done = nil, nil
	e.mu.Unlock()
	close(done)
	event := Event{Kind: Revoked, Token: hold.Token()}
	if errors.Is(cause, registry.ErrLockLost) {
		event.Err = cause
	}
	e.logger.Info("leadership ended", "role", e.role, "token", hold.Token(), "cause", cause)
	e.tell(event)
	switch {
	case failure != nil:
		return failure
	case errors.Is(cause, registry.ErrClosed):
		return fmt.Errorf("leader: election for %s: %w", e.role, cause)
	case unlock != nil && !errors.Is(unlock, registry.ErrLockLost):
		e.logger.Warn("leadership not given back, it ends with its lease", "role", e.role, "error", unlock)
	}
	if errors.Is(cause, ErrYielded) {
		sleep(ctx, e.yieldPause)
	}
	return nil
}

func (e *Elector) granted(ctx context.Context) {
	if e.candidate.OnGranted != nil {
		e.candidate.OnGranted(ctx)
	}
}

// protect runs f on a goroutine of its own, and turns a panic into an error. So it
// does if f ends its goroutine.
func protect(f func()) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error = &PanicError{Value: "it ended its goroutine"}
		defer func() {
			if p := recover(); p != nil {
				err = &PanicError{Value: p, Stack: debug.Stack()}
			}
			ended <- err
		}()
		f()
		err = nil
	}()
	return ended
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
