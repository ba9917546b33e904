package registrytest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// counts is how often a process has asked its repository.
type counts struct{ acquires, deletes atomic.Int64 }

func (p process) count() *counts {
	c := new(counts)
	p.repo.Set(func(_ context.Context, op string, do func() error) error {
		switch op {
		case "acquire":
			c.acquires.Add(1)
		case "delete":
			c.deletes.Add(1)
		}
		return do()
	})
	return c
}

// waiters has n goroutines wait for key, one behind the other, and sends their
// holds.
func (p process) waiters(n int, key string, opts ...registry.LockOption) <-chan *registry.Hold {
	holds := make(chan *registry.Hold, n)
	for range n {
		go func() {
			hold, err := p.Obtain(key).LockContext(context.Background(), opts...)
			if err != nil {
				p.t.Errorf("lock %q: %v", key, err)
			}
			holds <- hold
		}()
		time.Sleep(10 * time.Millisecond)
	}
	return holds
}

var handOverClauses = []clause{
	{"HandOver", "a lock that is given back passes to the next of its process, with the lease it has and a higher token", func(t *testing.T, b Backend) {
		const n = 5
		p, q := start(t, b, "a", registry.WithLocalHandOver(true)), start(t, b, "b")
		asked := p.count()
		hold := p.lock("foo")
		next := p.waiters(n, "foo")
		last := hold.Token()
		for range n {
			inside := hold.Context(context.Background())
			before := hold
			p.unlock(hold, nil)
			if hold = ends(t, "the next", next); hold == nil {
				return
			}
			if before.Held() || !hold.Held() || !errors.Is(context.Cause(inside), registry.ErrReleased) {
				t.Errorf("the one before holds it: %v, this one: %v; the context of the one before ended with %v", before.Held(), hold.Held(), context.Cause(inside))
			}
			if last > 0 && hold.Token() <= last || last == 0 && hold.Token() != 0 {
				t.Errorf("token %d comes after %d", hold.Token(), last)
			}
			last = hold.Token()
			if err := before.Renew(context.Background()); !errors.Is(err, registry.ErrNotHeld) {
				t.Errorf("renew the hold before: %v, want ErrNotHeld", err)
			}
			q.refused("foo")
		}
		p.unlock(hold, nil)
		// On a slow machine its time may be up once in between.
		if a, d := asked.acquires.Load(), asked.deletes.Load(); a != d || a > 2 || a > 1 && b.Bubble != nil {
			t.Errorf("%d acquires and %d deletes for %d holders, want one of each", a, d, n+1)
		}
		other := q.lock("foo")
		if last > 0 && other.Token() <= last {
			t.Errorf("token %d of another process comes after %d", other.Token(), last)
		}
		q.unlock(other, nil)
	}},
	{"HandOverOff", "without local hand-over every holder has a lease of its own", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithLocalHandOver(false))
		asked := p.count()
		hold := p.lock("foo")
		next := p.waiters(3, "foo")
		tokens := []int64{hold.Token()}
		for range 3 {
			p.unlock(hold, nil)
			hold = ends(t, "the next", next)
			tokens = append(tokens, hold.Token())
		}
		p.unlock(hold, nil)
		if a, d := asked.acquires.Load(), asked.deletes.Load(); a != 4 || d != 4 {
			t.Errorf("%d acquires and %d deletes for 4 holders", a, d)
		}
		if tokens[0] > 0 && (!slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 4) {
			t.Errorf("tokens %v", tokens)
		}
	}},
	{"HandOverIsALease", "who gets a lease handed over has it as long as one of its own: it is renewed, and has its own maximum", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithLocalHandOver(true), registry.WithTTL(600*time.Millisecond))
		hold := p.lock("foo")
		next := p.waiters(2, "foo", registry.WithMaxHold(time.Second))
		time.Sleep(250 * time.Millisecond)
		p.unlock(hold, nil)
		hold = ends(t, "the next", next)
		time.Sleep(700 * time.Millisecond) // longer than the TTL
		if !hold.Held() {
			t.Error("the lease was not renewed after it was handed over")
		}
		p.unlock(hold, nil)
		hold = ends(t, "the one after", next)
		inside := hold.Context(context.Background())
		time.Sleep(700 * time.Millisecond)
		if !hold.Held() {
			t.Error("the maximum of one holder counted for the next")
		}
		<-inside.Done()
		var lost *registry.LostError
		if err := context.Cause(inside); !errors.As(err, &lost) || lost.Reason != registry.LossMaxHold {
			t.Errorf("the context ended with %v, want LossMaxHold", err)
		}
		p.unlock(hold, registry.ErrLockLost)
	}},
	{"HandOverNot", "a lease is not handed to whoever wants other terms, nor if it was lost or verified", func(t *testing.T, b Backend) {
		verify := func(h *registry.Hold) {
			h.Verify(context.Background(), func(context.Context, repository.LockRepository, repository.Lease) (repository.LeaseStatus, error) {
				return repository.LeaseStatus{State: repository.LeaseStands, Remaining: time.Second}, nil
			})
		}
		for _, c := range []struct {
			name         string
			first, other []registry.LockOption
			before       func(*registry.Hold)
			want         error
		}{
			{name: "another TTL", other: []registry.LockOption{registry.WithTTL(time.Minute), registry.WithRenewal(true)}},
			{name: "not renewed", other: []registry.LockOption{registry.WithRenewal(false)}},
			{name: "was not renewed", first: []registry.LockOption{registry.WithRenewal(false)}},
			{name: "verified", before: verify},
			{name: "lost", first: []registry.LockOption{registry.WithMaxHold(30 * time.Millisecond)}, want: registry.ErrLockLost,
				before: func(*registry.Hold) { time.Sleep(40 * time.Millisecond) }},
		} {
			p := start(t, b, "a", registry.WithLocalHandOver(true), registry.WithOnLost(func(*registry.LostError) {}))
			asked := p.count()
			hold := p.lock(c.name, c.first...)
			next := p.waiters(1, c.name, c.other...)
			if c.before != nil {
				c.before(hold)
			}
			p.unlock(hold, c.want)
			hold = ends(t, "the next", next)
			if a, d := asked.acquires.Load(), asked.deletes.Load(); a != 2 || d != 1 {
				t.Errorf("%s: %d acquires and %d deletes, want 2 and 1", c.name, a, d)
			}
			p.unlock(hold, nil)
		}
	}},
	{"HandOverRow", "a hand-over does not look at the row; the next holder hears of a lost one", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithLocalHandOver(true), registry.WithTTL(500*time.Millisecond), registry.WithOnLost(func(*registry.LostError) {}))
		hold := p.lock("foo")
		next := p.waiters(1, "foo")
		b.Expire(t, registry.PathFor("foo"))
		p.unlock(hold, nil)
		hold = ends(t, "the next", next)
		inside := hold.Context(context.Background())
		ends(t, "the context of a lost lease", inside.Done())
		p.unlock(hold, registry.ErrLockLost)
	}},
	{"HandOverShares", "a process whose goroutines queue for a lock does not keep it from another", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithLocalHandOver(true)), start(t, b, "b", registry.WithLocalHandOver(true))
		stop := make(chan struct{})
		var busy sync.WaitGroup
		var turns atomic.Int64
		for range 4 {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if hold, err := p.Obtain("foo").LockContext(context.Background()); err == nil {
						turns.Add(1)
						time.Sleep(time.Millisecond)
						hold.Unlock(context.Background())
					}
				}
			})
		}
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			q.unlock(q.lock("foo"), nil)
		}
		close(stop)
		busy.Wait()
		if turns.Load() == 0 {
			t.Errorf("the busy process had %d turns", turns.Load())
		}
	}},
	{"HandOverToNobody", "a waiter that leaves just when the lease comes to it takes nothing with it", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithLocalHandOver(true)), start(t, b, "b")
		rounds := 200
		if b.Bubble == nil {
			rounds = 30
		}
		for i := range rounds {
			hold := p.lock("foo")
			ctx, cancel := context.WithCancel(context.Background())
			var left sync.WaitGroup
			for range 3 {
				left.Go(func() {
					if h, err := p.Obtain("foo").LockContext(ctx); err == nil {
						h.Unlock(context.Background())
					} else if !errors.Is(err, context.Canceled) {
						t.Errorf("err = %v, want the context's", err)
					}
				})
			}
			time.Sleep(time.Millisecond)
			left.Go(cancel)
			if i%2 == 0 {
				left.Go(func() { hold.Unlock(context.Background()) })
			} else {
				hold.Unlock(context.Background())
			}
			left.Wait()
		}
		q.unlock(q.lock("foo"), nil)
		p.noRows(10 * time.Second)
	}},
	{"HandOverClose", "Close while a lease is handed on leaves no row and nobody waiting", func(t *testing.T, b Backend) {
		for range 10 {
			p := start(t, b, "a", registry.WithLocalHandOver(true))
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for {
						hold, err := p.Obtain("foo").LockContext(context.Background())
						if err != nil {
							if !errors.Is(err, registry.ErrClosed) {
								t.Errorf("err = %v, want ErrClosed", err)
							}
							return
						}
						time.Sleep(time.Millisecond)
						hold.Unlock(context.Background())
					}
				})
			}
			time.Sleep(20 * time.Millisecond)
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
			all.Wait()
			if n := p.rows(); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	}},
}
