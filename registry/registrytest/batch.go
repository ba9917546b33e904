package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

var batchClauses = []clause{
	{"Together", "of many goroutines that lock at once each gets its own answer: its lock, its token, or who holds it", func(t *testing.T, b Backend) {
		n := 60
		if b.Bubble == nil {
			n = 30 // a file has one place for a writer
		}
		p, q := start(t, b, "a"), start(t, b, "b")
		held := make(map[int]*registry.Hold)
		for i := 0; i < n; i += 10 {
			held[i] = q.lock(fmt.Sprint("key-", i))
		}
		for round := range 3 {
			var all sync.WaitGroup
			var tokens sync.Map
			for i := range n {
				all.Go(func() {
					key := fmt.Sprint("key-", i)
					if held[i] != nil {
						_, err := p.tryLock(key)
						var refused *registry.NotAcquiredError
						if !errors.As(err, &refused) || refused.ClientID != "b" && refused.ClientID != "" {
							t.Errorf("%s: %v, want it held by b", key, err)
						}
						return
					}
					hold, err := p.Obtain(key).LockContext(context.Background())
					if err != nil || !hold.Held() || hold.Key() != key {
						t.Errorf("%s: %v", key, err)
						return
					}
					if other, twice := tokens.LoadOrStore(hold.Token(), key); twice && hold.Token() != 0 {
						t.Errorf("%s and %s have token %d", other, key, hold.Token())
					}
					q.refused(key)
					p.unlock(hold, nil)
				})
			}
			all.Wait()
			if rows := p.rows(); rows != len(held) {
				t.Errorf("round %d: %d rows, want the %d of the other process", round, rows, len(held))
			}
		}
		for _, hold := range held {
			q.unlock(hold, nil)
		}
	}},
	{"TogetherLeft", "a caller that leaves while its request waits to be sent takes no lock with it, and the others get theirs", func(t *testing.T, b Backend) {
		const n = 20
		p, q := start(t, b, "a"), start(t, b, "b")
		var first atomic.Bool
		held, goOn := make(chan struct{}), make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && first.CompareAndSwap(false, true) {
				close(held)
				<-goOn
			}
			return do()
		})
		one := goes(func() error { p.unlock(p.lock("one"), nil); return nil })
		ends(t, "the first statement", held)
		ctx, cancel := context.WithCancel(context.Background())
		var stay, leave sync.WaitGroup
		for i := range n {
			stay.Go(func() {
				hold, err := p.Obtain(fmt.Sprint("stay-", i)).LockContext(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				p.unlock(hold, nil)
			})
			leave.Go(func() {
				hold, err := p.Obtain(fmt.Sprint("leave-", i)).LockContext(ctx)
				if err == nil {
					p.unlock(hold, nil) // it was sent before, after all
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("err = %v, want the context's", err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		cancel()
		leave.Wait() // though the first statement has not come back
		close(goOn)
		stay.Wait()
		if err := ends(t, "the first", one); err != nil {
			t.Error(err)
		}
		p.noRows(10 * time.Second)
		for i := range n {
			q.unlock(q.lock(fmt.Sprint("leave-", i)), nil)
		}
	}},
	{"TogetherOutage", "a database that fails fails each request for itself, and each goes on by itself when it answers again", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		var down atomic.Bool
		down.Store(true)
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if down.Load() {
				do() // its answer is lost
				return errGone
			}
			return do()
		})
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				hold := p.lock(fmt.Sprint("key-", i))
				p.unlock(hold, nil)
			})
		}
		time.Sleep(50 * time.Millisecond)
		down.Store(false)
		all.Wait()
		p.noRows(30 * time.Second)
	}},
}
