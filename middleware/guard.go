package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/intlock/intlock/registry"
)

// The defaults.
const (
	DefaultTTL  = 5 * time.Minute
	DefaultCode = "REPEATED_REQUEST"
	DefaultText = "The same request is being processed. Please try again later."
)

// Guard lets one request at a time pass for each key. It is safe for concurrent
// use.
type Guard struct {
	locks     *registry.JdbcLockRegistry
	operation string
	ttl       time.Duration
	renewal   bool
	wait      time.Duration
	keepFor   time.Duration
	code      string
	text      string
	failOpen  bool
	logger    *slog.Logger
}

// Option configures a Guard.
type Option func(*Guard)

// WithTTL sets for how long a lock is kept if the process ends within a request,
// and without WithRenewal how long a request may take: more than the slowest one.
// Default: five minutes.
func WithTTL(ttl time.Duration) Option { return func(g *Guard) { g.ttl = ttl } }

// WithRenewal says whether the lock is renewed while the request runs. Then a
// request may take as long as it likes, also if it hangs, and the TTL can be short.
// Default: false.
func WithRenewal(on bool) Option { return func(g *Guard) { g.renewal = on } }

// WithWait sets for how long a request waits for another one with its key before it
// is refused. Default: 0, it is refused at once.
func WithWait(d time.Duration) Option { return func(g *Guard) { g.wait = d } }

// WithKeepFor keeps the lock for d after a request that succeeded: a quiet period
// in which repetitions are refused. Default: none.
func WithKeepFor(d time.Duration) Option { return func(g *Guard) { g.keepFor = d } }

// WithRefusal sets the code and the text of a RefusedError. They are the
// application's, and stay what they are. Default: DefaultCode and DefaultText.
func WithRefusal(code, text string) Option { return func(g *Guard) { g.code, g.text = code, text } }

// WithFailOpen says that requests are to run without a lock while the database does
// not answer. Two of one key may run at once then. Default: false, they fail with
// ErrUnavailable.
func WithFailOpen(on bool) Option { return func(g *Guard) { g.failOpen = on } }

// WithLogger sets the logger for what must not change a request's result: a lock
// that was lost while it ran, one that could not be given back, a request that
// failed open. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return func(g *Guard) { g.logger = l } }

// New returns the guard of an operation, such as "loan.apply". Guards of the same
// operation, in whichever process, exclude each other. The registry's own TTL and
// renewal do not matter. Errors match registry.ErrInvalid.
func New(locks *registry.JdbcLockRegistry, operation string, opts ...Option) (*Guard, error) {
	g := &Guard{locks: locks, operation: operation, ttl: DefaultTTL, code: DefaultCode, text: DefaultText, logger: slog.Default()}
	for _, o := range opts {
		o(g)
	}
	bad := func(format string, args ...any) (*Guard, error) {
		return nil, fmt.Errorf("%w: middleware of %q: %s", registry.ErrInvalid, operation, fmt.Sprintf(format, args...))
	}
	switch {
	case locks == nil || g.logger == nil:
		return bad("New and WithLogger take no nil")
	case operation == "":
		return bad("it needs a name")
	case g.ttl < time.Millisecond:
		return bad("TTL %v: want several times what a request takes, such as %v", g.ttl, DefaultTTL)
	case g.wait < 0 || g.keepFor < 0:
		return bad("WithWait and WithKeepFor take no negative time")
	case g.code == "" || g.text == "":
		return bad("WithRefusal wants a code and a text")
	}
	return g, nil
}

// enter takes the lock. Without an error the request may run under the context, and
// leave, which must be called once, gives the lock back.
func (g *Guard) enter(ctx context.Context, key string) (inside context.Context, leave func(success bool), err error) {
	full, err := g.lockKey(key)
	if err != nil {
		return nil, nil, err
	}
	hold, err := g.locks.Obtain(full).TryLockFor(ctx, g.wait, registry.WithTTL(g.ttl), registry.WithRenewal(g.renewal))
	if err == nil {
		return hold.Context(ctx), func(success bool) { g.leave(ctx, hold, success) }, nil
	}
	var held *registry.NotAcquiredError
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.As(err, &held) && !errors.Is(err, registry.ErrUnavailable):
		return nil, nil, &RefusedError{Code: g.code, Text: g.text, RetryAfter: held.Remaining}
	case g.failOpen:
		g.logger.Error("request runs without its lock", "operation", g.operation, "error", err)
		return ctx, func(bool) {}, nil
	}
	return nil, nil, unavailable(g.operation, err)
}

// leave gives the lock back, also if the request's context has ended. What comes
// of it does not change the request's result, which has been decided.
func (g *Guard) leave(ctx context.Context, hold *registry.Hold, success bool) {
	keep := g.keepFor
	if !success {
		keep = 0
	}
	switch err := hold.UnlockAfter(ctx, keep); {
	case errors.Is(err, registry.ErrLockLost):
		g.logger.Error("request took longer than its lock was held", "operation", g.operation, "key", hold.Key(), "error", err)
	case err != nil:
		g.logger.Error("lock not given back, it ends with its TTL", "operation", g.operation, "key", hold.Key(), "error", err)
	}
}

// Do runs f if no other request of the operation with this key runs, and returns
// what it returns. f's context ends with ctx, and when the lock is lost, with a
// cause that matches registry.ErrLockLost; registry.HoldFromContext finds the hold
// in it. The lock is given back when f returns, panics or exits.
//
// Without the lock f does not run, and the error is a *RefusedError, or matches
// ErrUnavailable or ErrKey, or is the cause of ctx's end.
func Do[T any](ctx context.Context, g *Guard, key string, f func(context.Context) (T, error)) (T, error) {
	inside, leave, err := g.enter(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	success := false
	defer func() { leave(success) }() // also if f panics
	value, err := f(inside)
	success = err == nil
	return value, err
}

// Wrap returns next behind the guard: see Do. key finds the key of a request; an
// error of it is returned, and ErrSkip lets the request pass without a lock.
func Wrap[Req, Resp any](g *Guard, key func(context.Context, Req) (string, error), next func(context.Context, Req) (Resp, error)) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (Resp, error) {
		k, err := key(ctx, req)
		switch {
		case err == ErrSkip:
			return next(ctx, req)
		case err != nil:
			var none Resp
			return none, err
		}
		return Do(ctx, g, k, func(ctx context.Context) (Resp, error) { return next(ctx, req) })
	}
}
