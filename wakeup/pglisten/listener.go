package pglisten

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/lib/pq"
)

// Listener implements registry.WakeUp with one connection of its own. It serves
// one registry, which starts it and ends it. While the server cannot be reached
// it tries again and again, and waiters poll.
type Listener struct {
	dsn    string
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below; never held while the server is asked
	wake    func(path string)
	alive   bool
	buckets [vendor.WaitBuckets]bucket
	changed chan struct{} // gets a token when a bucket has changed
}

// bucket is what is known of the keys that share an advisory lock.
type bucket struct {
	waiting  map[string]int // how many await a key; nil: nobody does
	locked   bool           // on the connection there is now
	needless time.Time      // since when nobody waits, while locked
}

// Option configures a Listener.
type Option func(*Listener)

// WithLogger sets the logger for what has no caller to return to: a connection
// that was lost, or cannot be had. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return func(p *Listener) { p.logger = l } }

// New returns a Listener for the server that dsn names, a URL or a list of
// settings as lib/pq takes them. It does not connect, so a server that is down is
// no error. Without a connect_timeout in it an attempt to connect takes 5 s at most.
// Errors never show the password.
func New(dsn string, opts ...Option) (*Listener, error) {
	dsn, err := bounded(dsn)
	if err != nil {
		return nil, fmt.Errorf("pglisten: the DSN does not parse: %s", vendor.Scrub(err.Error()))
	}
	l := &Listener{dsn: dsn, logger: slog.Default(), changed: make(chan struct{}, 1)}
	for _, o := range opts {
		o(l)
	}
	if l.logger == nil {
		return nil, errors.New("pglisten: the logger is nil")
	}
	return l, nil
}

// bounded is dsn with a connect_timeout. By default the driver waits for ever for a
// server that takes the connection and then says nothing, as one that hangs does.
func bounded(dsn string) (string, error) {
	config, err := pq.NewConfig(dsn)
	if err != nil || config.ConnectTimeout > 0 {
		return dsn, err
	}
	between := " "
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		between = "?"
		if strings.Contains(dsn, "?") {
			between = "&"
		}
	}
	return fmt.Sprintf("%s%sconnect_timeout=%d", dsn, between, int(answerTime.Seconds())), nil
}

// Start implements registry.WakeUp.
func (l *Listener) Start(ctx context.Context, wake func(path string), stopped func()) {
	l.mu.Lock()
	l.wake = wake
	l.mu.Unlock()
	go func() {
		defer stopped()
		l.supervise(ctx)
	}()
}

// Alive implements registry.WakeUp.
func (l *Listener) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive
}

// Await implements registry.WakeUp. Whoever waits is woken once at the
// beginning, when the server knows of it: a release just before would have
// notified nobody.
func (l *Listener) Await(path string) (done func()) {
	b := &l.buckets[bucketOf(path)]
	l.mu.Lock()
	if b.waiting == nil {
		b.waiting = make(map[string]int)
	}
	b.waiting[path]++
	known := b.locked
	l.mu.Unlock()
	if known {
		l.wake(path)
	} else {
		l.signal()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if b.waiting[path]--; b.waiting[path] == 0 {
			delete(b.waiting, path)
		}
		if len(b.waiting) == 0 {
			b.waiting, b.needless = nil, time.Now()
		}
	}
}

func (l *Listener) signal() {
	select {
	case l.changed <- struct{}{}:
	default: // somebody is about to look
	}
}

// bucketOf is the first byte of the key's SHA-256, modulo WaitBuckets, as the
// release has it: see repository.WithNotify.
func bucketOf(path string) int { return int(sha256.Sum256([]byte(path))[0]) % vendor.WaitBuckets }

// A bucket's lock is kept for a moment, as contended keys come back; afterwards
// it would have releases notify for nothing.
const keptNeedless = time.Second

// dueBuckets are those to lock and those to unlock now. What is to be unlocked
// counts as unlocked from now on: who comes meanwhile asks for it again.
func (l *Listener) dueBuckets(now time.Time) (lock, unlock []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.buckets {
		b := &l.buckets[i]
		switch {
		case b.waiting != nil && !b.locked:
			lock = append(lock, i)
		case b.waiting == nil && b.locked && now.Sub(b.needless) >= keptNeedless:
			b.locked = false
			unlock = append(unlock, i)
		}
	}
	return lock, unlock
}

// setLocked notes that the connection has a bucket's lock, and wakes those who
// waited for that.
func (l *Listener) setLocked(i int) {
	l.mu.Lock()
	b := &l.buckets[i]
	b.locked, b.needless = true, time.Now()
	waiting := slices.Collect(maps.Keys(b.waiting))
	l.mu.Unlock()
	for _, path := range waiting {
		l.wake(path)
	}
}

// setAlive notes that a connection is there, or is gone with all its locks.
func (l *Listener) setAlive(alive bool) {
	l.mu.Lock()
	l.alive = alive
	if !alive {
		for i := range l.buckets {
			l.buckets[i].locked = false
		}
	}
	l.mu.Unlock()
}
