package registry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// sleep pauses for d, or until the wait has to end: with ctx or the registry.
func (r *JdbcLockRegistry) sleep(ctx context.Context, d time.Duration) { pause(ctx, r.closing, d) }

// sleep pauses for d, or until ctx ends, and reports whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	pause(ctx, nil, d)
	return ctx.Err() == nil
}

func pause(ctx context.Context, closing <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closing:
	}
}

// backoff is a pause that doubles: 10 ms, 20 ms, ... 1 s, each with jitter, so
// that processes that failed together do not come back together.
type backoff time.Duration

func (b *backoff) next() time.Duration {
	*b = min(max(10*backoff(time.Millisecond), 2**b), backoff(time.Second))
	return jitter(time.Duration(*b))
}

// jitter draws between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// outage is a stretch of time in which the database did not answer about one
// key. It belongs to the goroutine that has the key's local turn, and outlives
// its call: those behind it do not each wait out the limit anew.
type outage struct {
	since, until time.Time // of the first and the last error; zero: it answers
	logged       time.Time
	backoff      backoff
}

// A pause without any error, as nobody asked, ends an outage as well.
const outageGap = 10 * time.Second

// patience takes note of an error and reports whether to go on trying.
func (o *outage) patience(key string, err error, limit time.Duration, log *slog.Logger) bool {
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.until) > outageGap {
		o.since, o.backoff = now, 0
	}
	o.until = now
	// The first errors are often a deadlock or a restart, and over at once.
	if now.Sub(o.since) > time.Second && now.Sub(o.logged) > 5*time.Second {
		o.logged = now
		log.Warn("lock: the database does not answer, trying on", "key", key, "for", now.Sub(o.since).Round(time.Second), "error", err)
	}
	return now.Sub(o.since) < limit
}

func (o *outage) end() { *o = outage{logged: o.logged} }

// contextCause is what an ended context says: its error, and its cause if that
// is another.
func contextCause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
