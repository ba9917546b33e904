package registry

import (
	"time"

	"github.com/intlock/intlock/repository"
)

// handOver passes the lease to the next goroutine in the queue, if it may have
// it, and reports whether it did. The row stays as it is, and so does the
// attempt that owns it; what the next one gets is a grant of its own, with the
// next of the tokens that the database has left to the holder.
//
// The caller has unlocked the last hold, has found no loss at now, and holds
// registry.mu and g.mu.
func (g *grant) handOver(now time.Time) bool {
	r := g.registry
	first := g.entry.waiting.Front()
	if first == nil || !r.config.handOver || r.closed || g.entry.streak.over(r, now) {
		return false
	}
	w := first.Value.(*waiter)
	if !g.goodFor(w.terms, now) {
		return false
	}
	g.returning = true
	g.kept.Forget()
	next := &grant{
		registry: r, entry: g.entry, key: w.key, attempt: g.attempt,
		handed: g.handed + 1, terms: w.terms, began: now, longest: g.longest,
	}
	if g.token > 0 {
		next.token = g.token + 1
	}
	w.hold = next.begin(g.trust, now)
	g.entry.waiting.Remove(first)
	close(w.turn)
	r.unuse(g.entry, now)
	g.end()
	return true
}

// goodFor reports whether the lease is as good as a new one for somebody with
// these terms: long enough, known to be in order, and not the word that some
// transaction has been given.
func (g *grant) goodFor(to terms, now time.Time) bool {
	return !g.returning && g.lost == nil && g.trouble == nil && !g.verified && !g.attempt.ghost &&
		g.terms.renewal && to.renewal && to.ttl == g.terms.ttl &&
		g.trust.at(now) >= g.terms.ttl/2 && g.handed+1 < repository.TokenStep
}
