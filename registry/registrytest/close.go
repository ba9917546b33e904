package registrytest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

var closeClauses = []clause{
	{"CloseEndsWaits", "Close ends every wait with ErrClosed, and there are no new locks", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		inQueue := goes(func() error { _, err := p.Obtain("foo").LockContext(context.Background()); return err })
		atRow := goes(func() error { _, err := q.Obtain("foo").LockContext(context.Background()); return err })
		time.Sleep(50 * time.Millisecond)
		closed := goes(func() error { return q.Close(context.Background()) })
		if err := ends(t, "the contender", atRow); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("err = %v, want ErrClosed", err)
		}
		if err := ends(t, "Close", closed); err != nil {
			t.Error(err)
		}
		closed = goes(func() error { return p.Close(context.Background()) })
		if err := ends(t, "the one in the queue", inQueue); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("err = %v, want ErrClosed", err)
		}
		p.unlock(hold, nil) // in time: it was never lost
		if err := ends(t, "Close", closed); err != nil {
			t.Error(err)
		}
		for range 2 {
			if _, err := p.Obtain("bar").TryLockContext(context.Background()); !errors.Is(err, registry.ErrClosed) {
				t.Errorf("err = %v, want ErrClosed", err)
			}
			if err := p.Close(context.Background()); err != nil {
				t.Errorf("Close again: %v", err)
			}
		}
		p.noRows(time.Second)
	}},
	{"CloseTellsHolders", "Close ends the holders' contexts, gives them a moment, and leaves no row", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		started := make(chan struct{})
		done := goes(func() error {
			return p.ExecuteLocked(context.Background(), "foo", func(ctx context.Context) error {
				close(started)
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, registry.ErrClosed) || errors.Is(cause, registry.ErrLockLost) {
					t.Errorf("cause = %v, want ErrClosed", cause)
				}
				return ctx.Err()
			})
		})
		ends(t, "the task", started)
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		err := ends(t, "the task", done)
		if !errors.Is(err, registry.ErrClosed) || !errors.Is(err, context.Canceled) || errors.Is(err, registry.ErrLockLost) {
			t.Errorf("a task that was stopped in time: %v, want its own error and ErrClosed", err)
		}
		p.noRows(0)
	}},
	{"CloseTakesLeases", "Close gives back what its holders do not, one by one, and their unlock says so", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		foo, other := p.lock("foo"), q.lock("other")
		l := p.Obtain("locker")
		l.Lock()
		begin := time.Now()
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if n := p.rows(); n != 1 {
			t.Errorf("%d rows are left, want the other registry's", n)
		}
		if foo.Held() {
			t.Error("a hold that Close took says it is held")
		}
		err := foo.Unlock(context.Background())
		if !errors.Is(err, registry.ErrLockLost) || !errors.Is(err, registry.ErrClosed) {
			t.Errorf("unlock = %v, want ErrLockLost and ErrClosed", err)
		}
		l.Unlock()
		if !errors.Is(l.Err(), registry.ErrLockLost) {
			t.Errorf("Err = %v, want ErrLockLost", l.Err())
		}
		q.unlock(other, nil)
	}},
	{"CloseUnderEndedContext", "Close under a context that has ended gives leases back all the same", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithTTL(time.Hour))
		for _, k := range []string{"1", "2", "3"} {
			p.lock(k)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		p.noRows(0)
	}},
	{"CloseReportsErrors", "Close returns every error of a lease it could not give back", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		p.lock("foo")
		broken := errors.New("permission denied")
		p.repo.Set(func(context.Context, string, func() error) error { return broken })
		if err := p.Close(context.Background()); !errors.Is(err, broken) {
			t.Errorf("Close = %v, want the database's error", err)
		}
		p.repo.Set(nil)
	}},
	{"CloseRacesLock", "a lock that is being taken while the registry closes is given back before Close returns", func(t *testing.T, b Backend) {
		for range 30 {
			p := start(t, b, "a")
			locked := goes(func() error {
				hold, err := p.Obtain("foo").LockContext(context.Background())
				if err == nil {
					hold.Unlock(context.Background())
				}
				return err
			})
			runtime.Gosched()
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if n := p.rows(); n != 0 {
				t.Fatalf("%d rows are left after Close", n)
			}
			if err := ends(t, "the lock call", locked); err != nil && !errors.Is(err, registry.ErrClosed) {
				t.Error(err)
			}
		}
	}},
	{"CloseWithoutDatabase", "Close returns what it could not give back, within its context", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		p.lock("foo")
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := p.Close(ctx); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("Close = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		p.repo.Set(nil)
	}},
}
