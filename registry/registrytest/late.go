package registrytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// Requests and answers that are lost on the way, or arrive late.
var lateClauses = []clause{
	{"UnknownAcquire", "an acquire whose answer was lost is taken back: nothing stays locked", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" {
				return after(do)
			}
			return do()
		})
		if _, err := p.Obtain("foo").TryLockContext(context.Background()); !errors.Is(err, registry.ErrUnavailable) {
			t.Fatalf("err = %v, want ErrUnavailable", err)
		}
		begin := time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.repo.Set(nil)
		p.use("foo")
		p.noRows(0)
	}},
	{"UnknownAcquireRepeated", "a wait repeats a request whose answer was lost, and finds the row to be its own", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && calls.Add(1) == 1 {
				return after(do)
			}
			return do()
		})
		begin := time.Now()
		hold := p.lock("foo")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v: the lease of its own lost request was waited out", took)
		}
		p.unlock(hold, nil)
		p.noRows(0)
	}},
	{"LateAcquire", "a request that its caller has left is taken back when it succeeds late", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		arrived, release := make(chan struct{}), make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" {
				close(arrived)
				<-release
			}
			return do()
		})
		ctx, cancel := context.WithCancel(context.Background())
		got := goes(func() error { _, err := p.Obtain("foo").LockContext(ctx); return err })
		ends(t, "the request", arrived)
		cancel()
		begin := time.Now()
		if err := ends(t, "the call", got); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("the call returned %v after its context ended", took)
		}
		p.repo.Set(nil)
		close(release)
		time.Sleep(20 * time.Millisecond)
		begin = time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.noRows(2 * time.Second)
	}},
	{"AnswerTooLate", "a grant whose answer comes after its lease has ended is no acquisition", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		const ttl = 200 * time.Millisecond
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			err := do()
			if op == "acquire" && calls.Add(1) == 1 {
				time.Sleep(ttl + ttl/10)
			}
			return err
		})
		if _, err := p.Obtain("foo").TryLockContext(context.Background(), registry.WithTTL(ttl)); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		hold := p.lock("foo", registry.WithTTL(10*time.Second))
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
	}},
	{"UnlockReplyLost", "a release whose reply was lost is not a lost lock", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		hold := p.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" && calls.Add(1) == 1 {
				return after(do)
			}
			return do()
		})
		p.unlock(hold, nil)
		p.noRows(0)
	}},
	{"LateRequestsDoNotShorten", "requests that arrive after later ones do not shorten the lease", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var first atomic.Bool
		landed := make(chan error, 2)
		// The first acquire and the first renewal get no answer, and reach the
		// store only after the second ones.
		late := func(_ context.Context, op string, do func() error) error {
			if op == "delete" || !first.CompareAndSwap(false, true) {
				return do()
			}
			go func() {
				time.Sleep(100 * time.Millisecond)
				landed <- do()
			}()
			return errGone
		}
		p.repo.Set(late)
		hold := p.lock("foo", registry.WithTTL(500*time.Millisecond))
		if err := hold.Renew(context.Background(), registry.WithTTL(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the late acquire", landed)
		first.Store(false)
		if err := hold.Renew(context.Background(), registry.WithTTL(500*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the late renewal", landed)
		time.Sleep(550 * time.Millisecond)
		if !hold.Held() {
			t.Fatal("the lease was lost")
		}
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
	}},
	{"HungRequest", "what a hung request leaves is taken back, but never from the call that got the lock meanwhile", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(time.Second)), start(t, b, "b")
		var n atomic.Int64
		landed := make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "acquire" && n.Add(1) == 1 {
				defer close(landed)
				time.Sleep(2500 * time.Millisecond) // the driver ignores its deadline
				return errGone
			}
			return do()
		})
		hold := p.lock("foo")
		if err := hold.Renew(context.Background(), registry.WithTTL(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		ends(t, "the hung request", landed)
		time.Sleep(100 * time.Millisecond)
		q.refused("foo")
		p.unlock(hold, nil)
		p.noRows(2 * time.Second)
	}},
	{"GhostAfterRelease", "a request that arrives after its lock was given back does not lock it for good", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var n atomic.Int64
		landed := make(chan struct{})
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op != "acquire" || n.Add(1) > 1 {
				return do()
			}
			go func() {
				defer close(landed)
				time.Sleep(200 * time.Millisecond)
				do()
			}()
			return errGone
		})
		hold := p.lock("foo", registry.WithTTL(20*time.Second))
		p.unlock(hold, nil)
		ends(t, "the late request", landed)
		begin := time.Now()
		q.use("foo")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next client waited %v", took)
		}
		p.noRows(2 * time.Second)
	}},
	{"UnlockAfterRefusal", "a release that the database refused once does not excuse a row that is gone", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		hold := p.lock("foo")
		b.Expire(t, registry.PathFor("foo"))
		next := q.lock("foo")
		var calls atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "delete" && calls.Add(1) == 1 {
				return errRefused
			}
			return do()
		})
		p.unlock(hold, registry.ErrLockLost)
		q.unlock(next, nil)
	}},
}
