package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/intlock/intlock/registry"
)

// Candidate is who may become leader. Both functions may be nil.
type Candidate struct {
	// OnGranted is called when the candidate has become the leader, with a context
	// that lasts as long as it is. It may return early, which changes nothing, or
	// do its work until the context ends; it should return soon then, as nobody
	// else is elected before it has, if the database can be reached. If it panics
	// the leadership ends, and Run returns a PanicError.
	OnGranted func(ctx context.Context)
	// OnRevoked is called when the leadership has ended and OnGranted has returned,
	// once for each OnGranted.
	OnRevoked func()
}

// The defaults. TTL is the registry's.
const (
	DefaultTTL        = registry.DefaultTTL
	DefaultYieldPause = time.Second
)

// Elector is a process's part in the election for a role.
type Elector struct {
	locks      *registry.JdbcLockRegistry
	role       string
	candidate  Candidate
	ttl        time.Duration
	yieldPause time.Duration
	onEvent    func(Event)
	logger     *slog.Logger

	mu      sync.Mutex     // guards the fields below
	running bool           // one Run at a time
	hold    *registry.Hold // the leader's; nil else
	yield   context.CancelCauseFunc
	done    chan struct{} // closed when the leadership that yield ends has ended
}

// Option configures an Elector.
type Option func(*Elector)

// WithTTL sets the length of the leader's lease, which is renewed: a leader whose
// process dies is replaced after as much. Default: 10 s.
func WithTTL(ttl time.Duration) Option { return func(e *Elector) { e.ttl = ttl } }

// WithYieldPause sets how long a candidate leaves the lock to others after Yield.
// Default: one second. Others look for it within the registry's IdleBetweenTries.
func WithYieldPause(d time.Duration) Option { return func(e *Elector) { e.yieldPause = d } }

// WithOnEvent has f called with each Event. It must be quick, and must not panic.
func WithOnEvent(f func(Event)) Option { return func(e *Elector) { e.onEvent = f } }

// WithLogger sets the logger for elections and outages. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return func(e *Elector) { e.logger = l } }

// New returns a candidate's elector for a role, which is the key of a lock. Errors
// match registry.ErrInvalid.
func New(locks *registry.JdbcLockRegistry, role string, candidate Candidate, opts ...Option) (*Elector, error) {
	e := &Elector{locks: locks, role: role, candidate: candidate, ttl: DefaultTTL, yieldPause: DefaultYieldPause, logger: slog.Default()}
	for _, o := range opts {
		o(e)
	}
	bad := func(format string, args ...any) (*Elector, error) {
		return nil, fmt.Errorf("%w: leader of %q: %s", registry.ErrInvalid, role, fmt.Sprintf(format, args...))
	}
	switch {
	case locks == nil || e.logger == nil:
		return bad("New and WithLogger take no nil")
	case role == "":
		return bad("the role needs a name")
	case e.ttl < 100*time.Millisecond:
		return bad("TTL %v: want at least 100ms, many times the database's answering time", e.ttl)
	case e.yieldPause < 0:
		return bad("a negative pause after Yield")
	}
	return e, locks.CheckKey(role)
}

// IsLeader reports whether this process is the leader. It reads the clocks, not a
// flag, so it tells the truth to code that wakes from a long pause.
func (e *Elector) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold != nil && e.hold.Held()
}

// Leader is who leads, as far as the database says.
type Leader struct {
	ClientID string        // of its repository
	Holder   string        // the readable name of its repository; empty for a Java service
	Since    time.Duration // how long ago the row of its lease was made
	Self     bool          // it is this elector
}

// Leader asks the database who the leader is. found is false if there is none
// now. Errors as those of registry.Info.
func (e *Elector) Leader(ctx context.Context) (l Leader, found bool, err error) {
	info, held, err := e.locks.Info(ctx, e.role)
	if err != nil || !held {
		return Leader{}, false, err
	}
	return Leader{ClientID: info.ClientID, Holder: info.Holder, Since: info.Age, Self: e.IsLeader()}, true, nil
}

// ErrYielded is the cause of the end of OnGranted's context after Yield.
var ErrYielded = errors.New("leader: leadership given up")

// Yield gives the leadership up, and returns when OnGranted and OnRevoked have
// returned and the lock is free, or when ctx ends. The candidate then stays out of
// the election for WithYieldPause's time, so that others come first. If it does not
// lead nothing happens. With OnGranted's own context, which it ends, it returns at
// once, and OnGranted should do so too.
func (e *Elector) Yield(ctx context.Context) error {
	e.mu.Lock()
	yield, done := e.yield, e.done
	e.mu.Unlock()
	if yield == nil {
		return nil
	}
	yield(ErrYielded)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if context.Cause(ctx) == ErrYielded {
			return nil
		}
		return fmt.Errorf("leader: yield %s: %w", e.role, context.Cause(ctx))
	}
}

// PanicError is what Run returns when OnGranted or OnRevoked has panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("leader: the candidate panicked: %v", e.Value)
}

// Unwrap returns what the candidate panicked with, if that was an error.
func (e *PanicError) Unwrap() error { err, _ := e.Value.(error); return err }
