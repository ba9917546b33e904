package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// short is the TTL of leases that have to be renewed several times while a
// clause runs: as short as a busy machine allows.
const short = 1500 * time.Millisecond

var keepClauses = []clause{
	{"KeptAlive", "a held lease is renewed by itself, for as long as it is held and no longer", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(short)), start(t, b, "b")
		ctx, cancel := context.WithCancel(context.Background())
		hold, err := p.Obtain("foo").LockContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // it limits the waiting only
		held := hold.Context(context.Background())
		for range 4 {
			time.Sleep(short / 2)
			q.refused("foo")
			if left := hold.Remaining(); left <= 0 || left > short {
				t.Errorf("remaining %v of a TTL of %v", left, short)
			}
		}
		if held.Err() != nil || !hold.Held() {
			t.Fatalf("lost: %v", context.Cause(held))
		}
		p.unlock(hold, nil)
		var renewed atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "renew" {
				renewed.Add(1)
			}
			return do()
		})
		time.Sleep(short)
		if n := renewed.Load(); n > 0 {
			t.Errorf("%d renewals after Unlock", n)
		}
		p.noRows(0)
	}},
	{"KeptAliveLocker", "so is one under the sync.Locker view", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(short)), start(t, b, "b")
		l := p.Obtain("foo")
		l.Lock()
		time.Sleep(2 * short)
		q.refused("foo")
		l.Unlock()
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	}},
	{"RenewalSwitch", "renewal is on by default, off for calls that name their TTL, and can be switched", func(t *testing.T, b Backend) {
		on, off := start(t, b, "on", registry.WithTTL(short)), start(t, b, "off", registry.WithTTL(short), registry.WithRenewal(false))
		q := start(t, b, "q")
		for _, c := range []struct {
			p    process
			opts []registry.LockOption
			kept bool
		}{
			{on, nil, true},
			{on, []registry.LockOption{registry.WithTTL(short)}, false},
			{on, []registry.LockOption{registry.WithTTL(short), registry.WithRenewal(true)}, true},
			{on, []registry.LockOption{registry.WithRenewal(false)}, false},
			{off, nil, false},
			{off, []registry.LockOption{registry.WithRenewal(true)}, true},
		} {
			hold := c.p.lock("foo", c.opts...)
			time.Sleep(short + short/4)
			if hold.Held() != c.kept {
				t.Errorf("%s with %d options: held %v, want %v", c.p.repo.ClientID(), len(c.opts), hold.Held(), c.kept)
			}
			want := registry.ErrLockLost
			if c.kept {
				q.refused("foo")
				want = nil
			} else {
				q.unlock(q.lock("foo"), nil)
			}
			c.p.unlock(hold, want)
		}
	}},
	{"RenewalRetried", "renewals that fail are tried again until one works", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(2*short)), start(t, b, "b")
		var tries atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			switch n := tries.Add(1); {
			case op != "renew" || n%4 == 0:
				return do()
			case n%2 == 0:
				return errors.New("permission denied")
			}
			return errGone
		})
		hold := p.lock("foo")
		time.Sleep(4 * short)
		q.refused("foo")
		p.unlock(hold, nil)
	}},
	{"RenewalAnswerLost", "a renewal that was executed and whose answer was lost does no harm", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithTTL(2*short))
		var tries atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "renew" && tries.Add(1)%2 == 1 {
				return after(do)
			}
			return do()
		})
		hold := p.lock("foo")
		time.Sleep(4 * short)
		p.unlock(hold, nil)
	}},
	{"RenewalsShareRequests", "many leases are renewed by few requests", func(t *testing.T, b Backend) {
		const leases = 100
		p := start(t, b, "a", registry.WithTTL(4*short))
		var holds []*registry.Hold
		for i := range leases {
			holds = append(holds, p.lock(fmt.Sprint("key-", i)))
		}
		var renewed atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			renewed.Add(1)
			return do()
		})
		time.Sleep(5 * short)
		if n := renewed.Load(); n == 0 || n > leases {
			t.Errorf("%d requests for %d leases in two to four rounds", n, leases)
		}
		p.repo.Set(nil)
		for _, hold := range holds {
			p.unlock(hold, nil)
		}
	}},
	{"CloseKeepsAlive", "a lease is renewed while Close waits for its holder", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithTTL(500*time.Millisecond))
		hold := p.lock("foo")
		closed := goes(func() error { return p.Close(context.Background()) })
		time.Sleep(650 * time.Millisecond) // Close waits for a second
		p.unlock(hold, nil)
		if err := ends(t, "Close", closed); err != nil {
			t.Error(err)
		}
	}},
	{"MaxHold", "a hold ends when it has lasted for WithMaxHold, whatever is left of the lease, and is not renewed beyond", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a", registry.WithTTL(short), registry.WithMaxHold(2*short)), start(t, b, "b")
		begin := time.Now()
		hold := p.lock("foo")
		held := hold.Context(context.Background())
		ends(t, "the hold", held.Done())
		if took := time.Since(begin); took < 2*short-short/4 {
			t.Errorf("it ended after %v, the maximum is %v", took, 2*short)
		}
		var lost *registry.LostError
		if err := context.Cause(held); !errors.As(err, &lost) || lost.Reason != registry.LossMaxHold {
			t.Errorf("cause = %v, want LossMaxHold", err)
		}
		if hold.Held() || hold.Remaining() != 0 {
			t.Errorf("held %v, remaining %v", hold.Held(), hold.Remaining())
		}
		if err := hold.Renew(context.Background()); !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("renew = %v", err)
		}
		next := q.lock("foo") // nobody renews it
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != registry.LossMaxHold || lost.Untaken {
			t.Errorf("unlock = %v, want LossMaxHold, and taken by another", err)
		}
		q.unlock(next, nil)

		hold = p.lock("foo", registry.WithMaxHold(short/4))
		time.Sleep(short / 2)
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != registry.LossMaxHold || !lost.Untaken {
			t.Errorf("unlock = %v, want LossMaxHold, and not taken", err)
		}
		p.noRows(0)
	}},
	{"ExpiryWarning", "the warning comes before the end of a lease that is not renewed, and never for one that is", func(t *testing.T, b Backend) {
		warned := make(chan *registry.Hold, 100)
		p := start(t, b, "a", registry.WithTTL(2*short), registry.WithExpiryWarning(short, func(h *registry.Hold) { warned <- h }))
		kept := p.lock("kept")
		time.Sleep(3 * short)
		p.unlock(kept, nil)
		if n := len(warned); n > 0 {
			t.Errorf("%d warnings of a lease that is renewed", n)
		}
		hold := p.lock("foo", registry.WithRenewal(false))
		if h := ends(t, "the warning", warned); h != hold || !h.Held() || h.Remaining() > short {
			t.Errorf("warned of %q with %v left", h.Key(), h.Remaining())
		}
		if err := hold.Renew(context.Background()); err != nil { // what a warning is for
			t.Fatal(err)
		}
		if h := ends(t, "the second warning", warned); h != hold || !h.Held() {
			t.Errorf("warned of %q with %v left", h.Key(), h.Remaining())
		}
		p.unlock(hold, nil)
		if n := len(warned); n > 0 {
			t.Errorf("%d warnings more", n)
		}
	}},
}
