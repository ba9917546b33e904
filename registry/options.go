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
	ttl         time.Duration
	idle        time.Duration
	capacity    int
	outageLimit time.Duration
	pathFor     func(string) string
	onLost      func(*LostError)
	logger      *slog.Logger
}

// call is what one lock call wants.
type call struct {
	ttl    time.Duration
	ttlSet bool          // the caller named the TTL
	wait   time.Duration // how long to wait for another holder; negative: until ctx ends
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

// TTLOption is an Option and a LockOption.
type TTLOption struct{ ttl time.Duration }

func (o TTLOption) applyRegistry(c *config) { c.ttl = o.ttl }
func (o TTLOption) applyLock(c *call)       { c.ttl, c.ttlSet = o.ttl, true }

// WithTTL sets the length of a lease: for the whole registry in New, for one
// call in a lock or renew call. At least 1 ms; a useful one is many times the
// database's answering time. The holder stops trusting its lease a twentieth
// of the TTL (at most a second) before it ends. Default: 10 s, Spring's.
func WithTTL(ttl time.Duration) TTLOption { return TTLOption{ttl} }

// WithIdleBetweenTries sets how long a waiter pauses between two attempts
// while another process holds the lock; each pause is drawn between half of it
// and all of it. A shorter one takes over sooner and asks the database more
// often. Default: 100 ms, Spring's.
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
// same key in every process. Spring's name is pathFor. Default: PathFor.
func WithPathFor(f func(key string) string) Option { return option(func(c *config) { c.pathFor = f }) }

// WithOnLost sets what is called when a lease is found to be lost, once per
// lease, whichever way its holder learns of it; users of the sync.Locker view
// have no other way. It runs on a goroutine of its own, may use the registry,
// and must not panic. Default: an error in the log.
func WithOnLost(f func(*LostError)) Option { return option(func(c *config) { c.onLost = f }) }

// WithLogger sets the logger for what has no caller to return to: outages that
// are waited out, releases that failed, lost locks. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return option(func(c *config) { c.logger = l }) }

type lockOption func(*call)

func (o lockOption) applyLock(c *call) { o(c) }

// WithWait limits how long a call waits while somebody else holds the lock:
// then it fails with ErrNotAcquired, or with ErrUnavailable if the database did
// not answer. 0, and less, makes one attempt. Default: as long as the context
// allows.
func WithWait(d time.Duration) LockOption { return lockOption(func(c *call) { c.wait = max(d, 0) }) }

func (c *config) validate() error {
	var errs []error
	if err := checkTTL(c.ttl); err != nil {
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
	if c.pathFor == nil || c.onLost == nil || c.logger == nil {
		errs = append(errs, invalid("WithPathFor, WithOnLost and WithLogger take no nil"))
	}
	return errors.Join(errs...)
}

func checkTTL(ttl time.Duration) error {
	if ttl < repository.MinTTL || ttl > repository.MaxTTL {
		return invalid("TTL %v: want at least %v and at most %v, such as %v", ttl, repository.MinTTL, repository.MaxTTL, DefaultTTL)
	}
	return nil
}

// newCall applies a call's options over the registry's defaults.
func (r *JdbcLockRegistry) newCall(opts []LockOption) (call, error) {
	c := call{ttl: r.config.ttl, wait: -1}
	for _, o := range opts {
		o.applyLock(&c)
	}
	return c, checkTTL(c.ttl)
}
