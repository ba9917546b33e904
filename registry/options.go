package registry

import (
	"errors"
	"log/slog"
	"time"

	"github.com/intlock/intlock/repository"
)

// Option configures a registry. Options only set fields; New checks them all
// together.
type Option interface{ applyRegistry(*config) }

// LockOption changes one lock call.
type LockOption interface{ applyLock(*call) }

type config struct {
	terms
	idle        time.Duration
	capacity    int
	outageLimit time.Duration
	pathFor     func(string) string
	pathForSet  bool
	batching    bool
	handOver    bool
	adaptive    bool
	wakeUp      WakeUp // nil: none
	onLost      func(*LostError)
	logger      *slog.Logger
}

// terms are what a lease is granted and kept for.
type terms struct {
	ttl        time.Duration
	renewal    bool
	maxHold    time.Duration // 0: for ever
	warnBefore time.Duration
	warn       func(*Hold) // nil: nobody

	ttlSet, renewalSet bool // named by this registry or call
}

// call is what one lock call wants.
type call struct {
	terms
	wait time.Duration // how long to wait for another holder; negative: until ctx ends
}

// The defaults. TTL, IdleBetweenTries and CacheCapacity are Spring's.
const (
	DefaultTTL              = 10 * time.Second
	DefaultIdleBetweenTries = 100 * time.Millisecond
	DefaultCacheCapacity    = 100_000
	DefaultOutageLimit      = 30 * time.Second
)

type option func(*config)

func (o option) applyRegistry(c *config) { o(c) }

// LeaseOption is an Option and a LockOption: for all leases of a registry, or
// for that of one call.
type LeaseOption func(*terms)

func (o LeaseOption) applyRegistry(c *config) { o(&c.terms) }
func (o LeaseOption) applyLock(c *call)       { o(&c.terms) }

// WithTTL sets the length of a lease: for the whole registry in New, for one
// call in a lock or renew call. At least 1 ms; a useful one is many times the
// database's answering time. The holder stops trusting its lease a twentieth
// of the TTL (at most a second) before it ends. A lock call that names its own
// TTL gets a lease that is not renewed, unless it says WithRenewal(true) too.
// Default: 10 s, Spring's.
func WithTTL(ttl time.Duration) LeaseOption {
	return func(t *terms) { t.ttl, t.ttlSet = ttl, true }
}

// WithRenewal says whether leases are renewed while they are held, a third of
// the TTL after they were granted or last renewed. A renewed lease lasts until
// Unlock, as long as the process runs and the database answers; one that is
// not renewed is lost when its TTL has passed, as Spring's. Default: true, but
// false for calls that name their own TTL.
func WithRenewal(on bool) LeaseOption {
	return func(t *terms) { t.renewal, t.renewalSet = on, true }
}

// WithMaxHold limits how long a lock can be held in all, renewals included:
// work that hangs does not keep it for ever. When the time is up the hold is
// lost with LossMaxHold, and its row can be had by others when the rest of its
// TTL has passed, if it is not unlocked before. 0 means no limit, the default.
func WithMaxHold(d time.Duration) LeaseOption { return func(t *terms) { t.maxHold = d } }

// WithExpiryWarning has warn called when a hold has only before left: its lease
// is not renewed, or its renewals fail, or its maximum time is nearly up. It is
// called again if the lease was renewed after all and runs out once more. A
// lease shorter than twice before is warned about at half its TTL. warn runs
// on a goroutine of its own, may use the hold, and must not panic; if several
// holds share the lease it gets the first. Default: none.
func WithExpiryWarning(before time.Duration, warn func(*Hold)) LeaseOption {
	return func(t *terms) { t.warnBefore, t.warn = before, warn }
}

// WithIdleBetweenTries sets the longest pause of a waiter between two attempts
// while another process holds the lock. The first pauses are shorter, a fiftieth
// of it at least: they grow with the time that was waited, so that short work is
// followed up at once and long work does not cost many looks. Each is drawn
// between half of its length and all of it. Default: 100 ms, Spring's, whose
// pauses are all of that length.
func WithIdleBetweenTries(d time.Duration) Option { return option(func(c *config) { c.idle = d }) }

// WithCacheCapacity limits how many locks the registry remembers. Those that
// are held or waited for are never forgotten: if they alone reach the limit,
// the next lock call for another key fails with ErrCapacity. Default: 100,000,
// Spring's.
func WithCacheCapacity(n int) Option { return option(func(c *config) { c.capacity = n }) }

// WithOutageLimit sets how long lock calls for a key keep trying while the
// database does not answer, before they fail with ErrUnavailable; those queued
// behind the first do not each wait anew. Calls that wait have this patience
// beside their context's. Default: 30 s.
func WithOutageLimit(d time.Duration) Option { return option(func(c *config) { c.outageLimit = d }) }

// WithPathFor replaces PathFor, the mapping from a key to the LOCK_KEY of the
// table. It must give 1 to 36 printable ASCII characters, and the same for the
// same key in every process. Spring's name is pathFor. Default: PathFor, unless
// the repository maps keys itself (repository.KeyMapper).
func WithPathFor(f func(key string) string) Option {
	return option(func(c *config) { c.pathFor, c.pathForSet = f, true })
}

// WithOnLost sets what is called when a lease is found to be lost, once per
// lease: by a renewal that finds the row gone, else when the lease's trusted
// time ends, whether anybody asks or not, and whatever the database does. Users
// of the sync.Locker view have no other way to hear of it in time. It runs on a
// goroutine of its own, may use the registry, and must not panic. Default: an
// error in the log.
func WithOnLost(f func(*LostError)) Option { return option(func(c *config) { c.onLost = f }) }

// WithLogger sets the logger for what has no caller to return to: outages that
// are waited out, releases that failed, lost locks. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return option(func(c *config) { c.logger = l }) }

// WithAdaptivePolling says whether a waiter's first pauses are shorter than
// WithIdleBetweenTries and grow with the time that it has waited. Without, each is
// as long, as Spring's are: then Java and Go processes that want one busy lock get
// it about equally often, where adaptive waiters are nearly always there first.
// Default: true.
func WithAdaptivePolling(on bool) Option { return option(func(c *config) { c.adaptive = on }) }

// WithBatching says whether requests that come in while the database is busy
// with others go to it together, in one statement, if the repository can do so
// (repository.BatchRepository). It costs a lone caller nothing, and with many
// goroutines it makes several times as many locks per second, as the database
// commits once for many. Each request keeps its own outcome, token and context.
// Default: true.
func WithBatching(on bool) Option { return option(func(c *config) { c.batching = on }) }

// WithLocalHandOver says whether a lock that is given back may pass to the next
// goroutine of this process that waits for it, without a visit to the database:
// the lease stays, the next holder gets a hold of its own and a higher token.
// That goes on for a limited number of times and for a limited time, a second at
// first, then the lease goes back and others get their chance. It is done
// between calls that have the same TTL and are renewed, while half of the TTL or
// more is left and the last renewal worked, and not with a hold that was
// verified in a transaction (fencing.AssertHeld): its lease goes back to the
// database, which waits for that transaction.
//
// An Unlock that hands the lease on asks no database, so it does not see that
// somebody has deleted the row; the next holder hears of it. Default: true.
func WithLocalHandOver(on bool) Option { return option(func(c *config) { c.handOver = on }) }

// WithWakeUp has somebody tell those who wait for a lock that it may be free, so
// that they get it within about a millisecond instead of at their next poll. The
// registry starts w and stops it when it is closed. See the packages below
// wakeup. Default: polling alone.
func WithWakeUp(w WakeUp) Option { return option(func(c *config) { c.wakeUp = w }) }

type lockOption func(*call)

func (o lockOption) applyLock(c *call) { o(c) }

// WithWait limits how long a call waits while somebody else holds the lock:
// then it fails with ErrNotAcquired, or with ErrUnavailable if the database did
// not answer. 0, and less, makes one attempt. Default: as long as the context
// allows.
func WithWait(d time.Duration) LockOption { return lockOption(func(c *call) { c.wait = max(d, 0) }) }

func (c *config) validate() error {
	var errs []error
	if err := c.terms.check(); err != nil {
		errs = append(errs, err)
	}
	if c.idle <= 0 {
		errs = append(errs, invalid("IdleBetweenTries %v: want more than 0, such as %v", c.idle, DefaultIdleBetweenTries))
	}
	if c.capacity <= 0 {
		errs = append(errs, invalid("CacheCapacity %d: want at least 1, such as %d", c.capacity, DefaultCacheCapacity))
	}
	if c.outageLimit <= 0 {
		errs = append(errs, invalid("OutageLimit %v: want more than 0, such as %v", c.outageLimit, DefaultOutageLimit))
	}
	if c.pathForSet && c.pathFor == nil || c.onLost == nil || c.logger == nil {
		errs = append(errs, invalid("WithPathFor, WithOnLost and WithLogger take no nil"))
	}
	return errors.Join(errs...)
}

func (t *terms) check() error {
	switch {
	case t.ttl < repository.MinTTL || t.ttl > repository.MaxTTL:
		return invalid("TTL %v: want at least %v and at most %v, such as %v", t.ttl, repository.MinTTL, repository.MaxTTL, DefaultTTL)
	case t.maxHold < 0:
		return invalid("MaxHold %v: want more than 0, or 0 for no limit", t.maxHold)
	case t.warn != nil && t.warnBefore <= 0:
		return invalid("ExpiryWarning %v before the end: want more than 0", t.warnBefore)
	}
	return nil
}

// newCall applies a call's options over the registry's defaults.
func (r *JdbcLockRegistry) newCall(opts []LockOption) (call, error) {
	if len(opts) == 0 {
		return call{terms: r.config.terms, wait: -1}, nil
	}
	c := call{terms: r.config.terms, wait: -1}
	c.ttlSet, c.renewalSet = false, false
	for _, o := range opts {
		o.applyLock(&c)
	}
	if c.ttlSet && !c.renewalSet {
		c.renewal = false
	}
	return c, c.terms.check()
}
