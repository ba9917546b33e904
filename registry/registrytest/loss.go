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

// losing starts a process whose losses come through a channel, and takes a
// lock of it.
func losing(t *testing.T, b Backend, opts ...registry.Option) (process, *registry.Hold, context.Context, <-chan *registry.LostError) {
	t.Helper()
	told := make(chan *registry.LostError, 10)
	p := start(t, b, "a", append([]registry.Option{registry.WithTTL(2 * short),
		registry.WithOnLost(func(err *registry.LostError) { told <- err })}, opts...)...)
	hold := p.lock("foo")
	return p, hold, hold.Context(context.Background()), told
}

// lost waits for the context to end, and checks that everybody is told the
// same: the context, the handler, Held, Renew and Unlock.
func (p process) lost(hold *registry.Hold, held context.Context, told <-chan *registry.LostError, want registry.LossReason) *registry.LostError {
	p.t.Helper()
	ends(p.t, "the context", held.Done())
	if hold.Held() {
		p.t.Error("the context has ended, and the lock is held")
	}
	var lost, unlocked *registry.LostError
	if err := context.Cause(held); !errors.As(err, &lost) || lost.Reason != want {
		p.t.Fatalf("the cause is %v, want %q", err, want)
	}
	if err := ends(p.t, "OnLost", told); err != lost {
		p.t.Errorf("OnLost was told %v, the context %v", err, lost)
	}
	if err := hold.Renew(context.Background()); !errors.Is(err, lost) {
		p.t.Errorf("renew = %v", err)
	}
	if err := hold.Unlock(context.Background()); !errors.As(err, &unlocked) || unlocked.Reason != want {
		p.t.Errorf("unlock = %v, want %q", err, want)
	}
	if len(told) > 0 {
		p.t.Errorf("OnLost was told again: %v", <-told)
	}
	return lost
}

// vanish is what an operator does who frees a lock by hand.
func (p process) vanish(b Backend, key string) {
	p.t.Helper()
	b.Expire(p.t, registry.PathFor(key))
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		n, _, err := p.repo.LockRepository.DeleteExpired(context.Background(), "")
		if err == nil && n == 1 {
			return
		}
		if err != nil && !errors.Is(err, repository.ErrTransient) || time.Since(begin) > 10*time.Second {
			p.t.Fatalf("DeleteExpired = %d, %v", n, err)
		}
	}
}

var lossClauses = []clause{
	{"LossDeleted", "a holder whose row somebody deleted hears of it by itself", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		start(t, b, "operator").vanish(b, "foo")
		p.lost(hold, held, told, registry.LossDeleted)
		p.noRows(0)
	}},
	{"LossTaken", "a holder whose row was taken over hears by whom, and never gets it back", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		q := start(t, b, "b")
		q.vanish(b, "foo")
		next := q.lock("foo")
		lost := p.lost(hold, held, told, registry.LossTaken)
		if lost.ClientID != "b" || lost.Holder == "" {
			t.Errorf("taken by client %q, holder %q", lost.ClientID, lost.Holder)
		}
		time.Sleep(short)
		q.unlock(next, nil)
	}},
	{"LossExpiredThere", "a lease that ended in the database, whose clock may have jumped, is not revived", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		b.Expire(t, registry.PathFor("foo"))
		p.lost(hold, held, told, registry.LossExpired)
	}},
	{"LossSeenByUnlock", "what Unlock finds out first it tells: deleted, or taken over by whom", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		var lost *registry.LostError
		hold := p.lock("foo")
		q.vanish(b, "foo")
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != registry.LossDeleted {
			t.Errorf("unlock = %v, want LossDeleted", err)
		}
		hold = p.lock("foo")
		q.vanish(b, "foo")
		next := q.lock("foo")
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != registry.LossTaken || lost.ClientID != "b" {
			t.Errorf("unlock = %v, want LossTaken by b", err)
		}
		q.unlock(next, nil)
		hold = p.lock("foo", registry.WithTTL(50*time.Millisecond))
		time.Sleep(60 * time.Millisecond)
		next = q.lock("foo")
		if err := hold.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != registry.LossExpired || lost.ClientID != "b" {
			t.Errorf("unlock = %v, want LossExpired and taken by b", err)
		}
		q.unlock(next, nil)
	}},
	{"LossUnreachable", "a holder hears in time that the database does not answer, with what it said", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		begin := time.Now()
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "renew" {
				return errGone
			}
			return do()
		})
		lost := p.lost(hold, held, told, registry.LossUnreachable)
		if took := time.Since(begin); took > 2*short+short/2 {
			t.Errorf("told after %v, the TTL is %v", took, 2*short)
		}
		if !errors.Is(lost, errGone) {
			t.Errorf("the cause does not say what went wrong: %v", lost)
		}
	}},
	{"LossInBlackHole", "it does so too when the driver never comes back", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		begin := time.Now()
		hole := make(chan struct{})
		defer close(hole)
		p.repo.Set(func(context.Context, string, func() error) error {
			<-hole
			return errGone
		})
		ends(t, "the context", held.Done())
		if took := time.Since(begin); took > 2*short+short/2 {
			t.Errorf("told after %v, the TTL is %v", took, 2*short)
		}
		p.repo.Set(nil)
		p.lost(hold, held, told, registry.LossUnreachable)
	}},
	{"LossRefused", "an error that cannot pass is told with the loss", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		denied := errors.New("permission denied")
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "renew" {
				return denied
			}
			return do()
		})
		if lost := p.lost(hold, held, told, registry.LossExpired); !errors.Is(lost, denied) {
			t.Errorf("the cause does not say what went wrong: %v", lost)
		}
	}},
	{"LossIsFinal", "once a loss was told, no renewal is sent, and an answer that is still to come changes nothing", func(t *testing.T, b Backend) {
		p, hold, held, told := losing(t, b)
		var asked atomic.Int64
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op != "renew" {
				return do()
			}
			asked.Add(1)
			err := do() // executed at once, and answered when nobody believes in it any more
			time.Sleep(2 * short)
			return err
		})
		ends(t, "the context", held.Done())
		before := asked.Load()
		time.Sleep(2*short + short/2)
		if hold.Held() || hold.Remaining() != 0 {
			t.Errorf("held %v, remaining %v", hold.Held(), hold.Remaining())
		}
		if n := asked.Load(); n != before {
			t.Errorf("%d renewals after the loss", n-before)
		}
		p.repo.Set(nil)
		p.lost(hold, held, told, registry.LossUnreachable)
	}},
	{"RenewalAnswerLate", "an answer that comes late, but before the end, counts from when it was asked for", func(t *testing.T, b Backend) {
		p, hold, held, _ := losing(t, b, registry.WithTTL(4*short))
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			err := do()
			if op == "renew" {
				time.Sleep(2 * short) // the scheduler has given up on it long before
			}
			return err
		})
		time.Sleep(8 * short)
		if !hold.Held() || held.Err() != nil {
			t.Fatalf("lost: %v", context.Cause(held))
		}
		if left := hold.Remaining(); left > 3*short {
			t.Errorf("remaining %v, but no answer took less than %v of %v", left, 2*short, 4*short)
		}
		p.repo.Set(nil)
		p.unlock(hold, nil)
	}},
}
