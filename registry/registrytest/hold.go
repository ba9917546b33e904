package registrytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

type contextKey struct{}

// numbered gives each grant the next number as its token.
type numbered struct {
	repository.LockRepository
	granted *atomic.Int64
}

func (n numbered) Acquire(ctx context.Context, req repository.Request) (repository.Outcome, error) {
	out, err := n.LockRepository.Acquire(ctx, req)
	if out.Acquired {
		out.Token = n.granted.Add(1)
	}
	return out, err
}

var holdClauses = []clause{
	{"Handle", "whoever has the hold may unlock it, once", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		if !hold.Held() || hold.Remaining() <= 0 || hold.Remaining() > registry.DefaultTTL || hold.Key() != "foo" {
			t.Errorf("held %v, remaining %v, key %q", hold.Held(), hold.Remaining(), hold.Key())
		}
		if err := ends(t, "unlock", goes(func() error { return hold.Unlock(context.Background()) })); err != nil {
			t.Fatal(err)
		}
		successor := q.lock("foo")
		p.unlock(hold, registry.ErrNotHeld)
		if hold.Held() || hold.Remaining() != 0 {
			t.Error("an unlocked hold says it is held")
		}
		if err := hold.Renew(context.Background()); !errors.Is(err, registry.ErrNotHeld) {
			t.Errorf("renew after unlock: %v, want ErrNotHeld", err)
		}
		q.unlock(successor, nil)
	}},
	{"Token", "a hold has the token that its grant came with, also when renewed or nested, and after the unlock", func(t *testing.T, b Backend) {
		var granted atomic.Int64
		open := b.Open
		b.Open = func(t *testing.T, clientID string) repository.LockRepository {
			return numbered{open(t, clientID), &granted}
		}
		p, q := start(t, b, "a"), start(t, b, "b")
		for want := int64(1); want < 4; want += 2 {
			hold := p.lock("foo")
			if err := hold.Renew(context.Background()); err != nil {
				t.Fatal(err)
			}
			nested, err := p.Obtain("foo").LockContext(hold.Context(context.Background()))
			if err != nil {
				t.Fatal(err)
			}
			p.unlock(nested, nil)
			p.unlock(hold, nil)
			if hold.Token() != want || nested.Token() != want {
				t.Errorf("tokens %d and, nested, %d, want %d", hold.Token(), nested.Token(), want)
			}
			next := q.lock("foo")
			if next.Token() != want+1 {
				t.Errorf("the next hold has token %d, want %d", next.Token(), want+1)
			}
			q.unlock(next, nil)
		}
	}},
	{"Context", "the hold's context ends with the hold, with its parent, and when the lease is lost, and says which", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		parent, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "v"))
		hold := p.lock("foo")
		ctx, child := hold.Context(context.Background()), hold.Context(parent)
		if ctx.Err() != nil || child.Err() != nil || child.Value(contextKey{}) != "v" {
			t.Fatalf("a fresh context: %v, %v, value %v", ctx.Err(), child.Err(), child.Value(contextKey{}))
		}
		cancel()
		ends(t, "the child of a cancelled parent", child.Done())
		if ctx.Err() != nil || !hold.Held() {
			t.Error("the parent's end reached further than its child")
		}
		p.unlock(hold, nil)
		ends(t, "the context after unlock", ctx.Done())
		if cause := context.Cause(ctx); !errors.Is(cause, registry.ErrReleased) {
			t.Errorf("cause = %v, want ErrReleased", cause)
		}
		if late := hold.Context(context.Background()); !errors.Is(context.Cause(late), registry.ErrReleased) {
			t.Errorf("a context made after unlock: cause %v", context.Cause(late))
		}

		const ttl = 300 * time.Millisecond
		granted := time.Now()
		hold = p.lock("bar", registry.WithTTL(ttl))
		ctx = hold.Context(context.Background())
		ends(t, "the context of a lost lease", ctx.Done())
		if took := time.Since(granted); took >= ttl+100*time.Millisecond {
			t.Errorf("the context ended after %v, the TTL is %v", took, ttl)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, registry.ErrLockLost) || hold.Held() {
			t.Errorf("cause = %v, held %v, want ErrLockLost and not held", cause, hold.Held())
		}
		p.unlock(hold, registry.ErrLockLost)
	}},
	{"TrustEndsFirst", "a holder stops trusting its lease before anyone else can have the lock", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b", registry.WithIdleBetweenTries(time.Millisecond))
		for range 3 {
			hold := p.lock("foo", registry.WithTTL(300*time.Millisecond))
			next := q.lock("foo")
			if hold.Held() {
				t.Fatal("two holders believe in the lock")
			}
			p.unlock(hold, registry.ErrLockLost)
			q.unlock(next, nil)
		}
	}},
	{"LostToAnother", "21, 38: unlocking a lease that another process took reports it lost, and leaves the other alone", func(t *testing.T, b Backend) {
		var told atomic.Int64
		p := start(t, b, "a", registry.WithOnLost(func(err *registry.LostError) { told.Add(1) }))
		q := start(t, b, "b")
		hold := p.lock("foo", registry.WithTTL(100*time.Millisecond))
		next := q.lock("foo")
		var lost *registry.LostError
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Untaken || lost.Key != "foo" {
			t.Fatalf("unlock = %v (%+v), want a LostError of a lock that was taken", err, lost)
		}
		p.unlock(hold, registry.ErrNotHeld)
		p.refused("foo")
		time.Sleep(20 * time.Millisecond)
		if told.Load() != 1 {
			t.Errorf("OnLost was called %d times, want once", told.Load())
		}
		q.unlock(next, nil)
	}},
	{"LostRow", "22: unlocking or renewing a lease whose row was deleted reports it lost", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		for _, end := range []func(*registry.Hold) error{
			func(h *registry.Hold) error { return h.Unlock(context.Background()) },
			func(h *registry.Hold) error {
				return errors.Join(h.Renew(context.Background()), h.Unlock(context.Background()))
			},
		} {
			hold := p.lock("foo")
			ctx := hold.Context(context.Background())
			b.Expire(t, registry.PathFor("foo"))
			if n, _, err := q.repo.DeleteExpired(context.Background(), ""); err != nil || n != 1 {
				t.Fatalf("DeleteExpired = %d, %v", n, err)
			}
			if err := end(hold); !errors.Is(err, registry.ErrLockLost) {
				t.Errorf("err = %v, want ErrLockLost", err)
			}
			ends(t, "the context", ctx.Done())
		}
	}},
	{"LostUntaken", "a lease that ran out is lost even if nobody took it; Unlock says that nobody did", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo", registry.WithTTL(500*time.Millisecond))
		time.Sleep(600 * time.Millisecond)
		var lost *registry.LostError
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || !lost.Untaken || lost.Reason != registry.LossExpired {
			t.Errorf("unlock = %v, want an expired lease that nobody took", err)
		}
		p.noRows(0)
	}},
	{"LostLocker", "a lock that was lost under the sync.Locker view reaches OnLost, and Err keeps it", func(t *testing.T, b Backend) {
		told := make(chan *registry.LostError, 10)
		p := start(t, b, "a", registry.WithTTL(100*time.Millisecond), registry.WithRenewal(false),
			registry.WithOnLost(func(err *registry.LostError) { told <- err }))
		l := p.Obtain("foo")
		l.Lock()
		time.Sleep(150 * time.Millisecond)
		l.Unlock()
		if err := ends(t, "OnLost", told); err.Key != "foo" {
			t.Errorf("OnLost was told about %q", err.Key)
		}
		if !errors.Is(l.Err(), registry.ErrLockLost) {
			t.Errorf("Err = %v, want ErrLockLost", l.Err())
		}
		l.Lock()
		time.Sleep(time.Millisecond)
		l.Unlock()
		if l.Err() != nil {
			t.Errorf("Err after a good Unlock = %v", l.Err())
		}
	}},
	{"OnLostUsesRegistry", "OnLost may take locks and close the registry", func(t *testing.T, b Backend) {
		var p process
		told := make(chan error, 1)
		p = start(t, b, "a", registry.WithOnLost(func(*registry.LostError) {
			err := p.ExecuteLocked(context.Background(), "foo", func(context.Context) error { return nil })
			told <- errors.Join(err, p.Close(context.Background()))
		}))
		hold := p.lock("foo")
		b.Expire(t, registry.PathFor("foo"))
		if n, _, err := p.repo.DeleteExpired(context.Background(), ""); err != nil || n != 1 {
			t.Fatalf("DeleteExpired = %d, %v", n, err)
		}
		unlocked := goes(func() error { return hold.Unlock(context.Background()) })
		if err := ends(t, "Unlock", unlocked); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("unlock = %v, want ErrLockLost", err)
		}
		if err := ends(t, "OnLost", told); err != nil {
			t.Errorf("inside OnLost: %v", err)
		}
	}},
	{"UnlockCancelled", "Unlock under a cancelled context gives the lock back", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		ctx, cancel := context.WithCancel(context.Background())
		hold, err := p.Obtain("foo").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if !hold.Held() {
			t.Error("the end of the lock call's context ended the hold")
		}
		if err := hold.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		p.noRows(0)
		q.unlock(q.lock("foo"), nil)
	}},
}
