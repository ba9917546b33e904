package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// outage is a stretch of time in which the database did not answer.
type outage struct {
	limit   time.Duration
	log     interface{ Warn(string, ...any) }
	since   time.Time // zero: it answers
	logged  time.Time
	last    error
	backoff backoff
}

// patience takes note of an error and reports whether to go on trying.
func (o *outage) patience(key string, err error) bool {
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	o.last = err
	// The first errors are often a deadlock or a restart, and over at once.
	if now.Sub(o.since) > time.Second && now.Sub(o.logged) > 5*time.Second {
		o.logged = now
		o.log.Warn("lock: the database does not answer, trying on", "key", key, "for", now.Sub(o.since).Round(time.Second), "error", err)
	}
	return now.Sub(o.since) < o.limit
}

func (o *outage) end() { o.since, o.last, o.backoff = time.Time{}, nil, 0 }

// backoff is a pause that doubles: 10 ms, 20 ms, ... 1 s, each with jitter, so
// that processes that failed together do not come back together.
type backoff time.Duration

func (b *backoff) next() time.Duration {
	*b = min(max(10*backoff(time.Millisecond), 2**b), backoff(time.Second))
	return jitter(time.Duration(*b))
}

// sleep pauses and reports whether ctx still stands.
func (b *backoff) sleep(ctx context.Context) bool {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// jitter draws between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// contextCause is what an ended context says: its error, and its cause if that
// is another.
func contextCause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
