package registry

import (
	"context"
	"errors"
	"time"

	"github.com/intlock/intlock/repository"
)

// wait is a lock call's waiting for another process: what it learns of the
// holder, and how long it pauses between two looks.
type wait struct {
	call
	registry *JdbcLockRegistry
	key      string
	start    time.Time

	silence error             // the database's last error, nil once it has answered
	holder  *NotAcquiredError // nil before the first refusal
	woken   <-chan struct{}   // says that the key may be free; nil: nobody would say so
	done    func()            // ends the awaiting
}

// refused takes note of a refusal and says how long to pause.
//
// The pauses are a share of what has been waited so far: who waits for short
// work looks often, who waits for long work seldom, and what a waiter loses by
// sleeping is a small part of its wait in both cases. WithIdleBetweenTries is
// the longest.
func (w *wait) refused(e *entry, out repository.Outcome) time.Duration {
	r := w.registry
	w.silence = nil
	if w.holder == nil {
		w.holder = &NotAcquiredError{Key: w.key}
	}
	w.holder.heldBy(out)
	share := time.Duration(pollShare)
	if up := r.config.wakeUp; up != nil && w.wait != 0 {
		if w.done == nil {
			w.woken, w.done = r.await(e, up)
		}
		if up.Alive() {
			share = wokenShare
		}
	}
	idle := r.config.idle
	pause := idle
	if r.config.adaptive {
		pause = min(max(time.Since(w.start)/share, idle/shortestPause), idle)
	}
	pause = jitter(pause)
	if out.Remaining > 0 {
		// Just after the end; an expired row is nobody's.
		pause = min(pause, out.Remaining+time.Millisecond)
	}
	return pause
}

// How long a pause is: this part of what has been waited, without and with
// somebody who says when to look, and at least that part of
// WithIdleBetweenTries.
const pollShare, wokenShare, shortestPause = 16, 2, 50

// pause sleeps for d, or until it makes sense to look.
func (w *wait) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.woken:
	case <-ctx.Done():
	case <-w.registry.closing:
	}
}

// giveUp is the error of a wait that ended because of cause, or of time if that
// is nil.
func (w *wait) giveUp(cause error) error {
	silence := w.silence
	if silence != nil {
		silence = unavailable("acquire", w.key, silence)
	}
	err := w.holder
	if err == nil {
		if silence != nil && cause == nil { // nothing says that anybody holds it
			return silence
		}
		err = &NotAcquiredError{Key: w.key}
		if silence != nil {
			err.held = "the database does not answer"
		}
	}
	err.Waited, err.Cause = time.Since(w.start), errors.Join(cause, silence)
	return err
}

func (w *wait) end() {
	if w.done != nil {
		w.done()
	}
}
