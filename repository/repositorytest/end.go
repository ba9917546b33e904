package repositorytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

// Leases whose rows stay for a while after their end, and the look at a row.
var endClauses = []clause{
	{"EndAfterShortens", "a lease can be ended early, at a time from now", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		a.endAfter(lease, 300*time.Millisecond, true)
		begin := time.Now()
		h.checkLeft(t, b.refused(keyA), 300*time.Millisecond)
		for !b.try(request(keyA, long)).Acquired {
			if time.Since(begin) > 10*time.Second {
				t.Fatal("the key does not become free")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begin); took < 250*time.Millisecond {
			t.Errorf("the key was free after %v", took)
		}
	}},
	{"EndAfterProlongs", "the end may lie behind the lease's own", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		a.endAfter(a.take(keyA, 2*time.Second), long, true)
		h.checkLeft(t, b.refused(keyA), long)
	}},
	{"EndAfterIsTheLast", "nothing can be done to a lease that was ended so, and a late repetition changes nothing", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		a.endAfter(lease, long, true)
		a.renew(lease, 2*long, repository.LeaseTaken)
		a.endAfter(lease, time.Second, false)
		a.delete(lease, false)
		h.checkLeft(t, b.refused(keyA), long)
		if out := a.try(repository.Request{Key: keyA, Attempt: lease.Attempt, TTL: 2 * long}); out.Acquired {
			t.Error("the attempt whose lease was ended took the key again")
		}
		h.Expire(t, "r1", keyA)
		b.take(keyA, long)
	}},
	{"EndAfterForeign", "ending does nothing to a row that is another's, or gone", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		h.Expire(t, "r1", keyA)
		successor := b.take(keyA, long)
		a.endAfter(lease, time.Second, false)
		b.renew(successor, long, repository.LeaseStands)
		b.delete(successor, true)
		a.endAfter(lease, time.Second, false)
		a.acquired(keyA, false)
	}},
	{"EndAfterExpired", "a lease that has expired, and that nobody took over, can be ended like another", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		h.Expire(t, "r1", keyA)
		a.endAfter(lease, long, true)
		b.refused(keyA)
	}},
	{"EndAfterInput", "an impossible time is an error that nothing was done for", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		lease := a.take(keyA, long)
		for _, d := range []time.Duration{-time.Second, 0, repository.MinTTL - 1, repository.MaxTTL + 1} {
			if _, err := a.EndAfter(t.Context(), lease, d); !errors.Is(err, repository.ErrInvalid) {
				t.Errorf("%v: %v, want ErrInvalid", d, err)
			}
		}
		a.delete(lease, true)
	}},
	{"Get", "whoever asks is told who has a key, for how long, and since when", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		if _, found, err := b.Get(context.Background(), keyA); found || err != nil {
			t.Fatalf("Get of no row: %v, %v", found, err)
		}
		a.take(keyA, long)
		a.take(keyB, long)
		time.Sleep(20 * time.Millisecond)
		info := b.row(keyA)
		if info.Key != keyA || info.ClientID != "a" || info.Name != "a name" || !near(info.Remaining, long) || !info.Held() {
			t.Errorf("Get = %+v", info)
		}
		if info.Age != 0 && (info.Age < 19*time.Millisecond || info.Age > 10*time.Second) {
			t.Errorf("Age = %v, want that of the grant", info.Age)
		}
		for _, listed := range a.list() {
			if listed.Key == keyA && (listed.Age < info.Age || listed.Age > info.Age+10*time.Second) {
				t.Errorf("List says %v, Get said %v", listed.Age, info.Age)
			}
		}
		h.Expire(t, "r1", keyA)
		if info := b.row(keyA); info.Held() || info.ClientID != "a" {
			t.Errorf("after its end: %+v", info)
		}
	}},
}
