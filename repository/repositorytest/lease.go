package repositorytest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

// What becomes of a lease that was granted.
var leaseClauses = []clause{
	{"RenewKeeps", "renewing prolongs the lease from now, and never shortens it", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, 2*time.Second)
		if got := a.renew(lease, long, repository.LeaseStands); !lasts(got, long) {
			t.Errorf("Remaining = %v, want %v", got.Remaining, long)
		}
		h.checkLeft(t, b.refused(keyA), long)
		for range 100 { // also twice within the clock's precision
			if got := a.renew(lease, 5*time.Second, repository.LeaseStands); got.Remaining < 5*time.Second {
				t.Fatalf("Remaining = %v, want at least the TTL", got.Remaining)
			}
		}
		h.checkLeft(t, b.refused(keyA), long)
	}},
	{"RenewExpired", "renewing never revives an expired lease, even if nobody took it", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		h.Expire(t, "r1", keyA)
		a.renew(lease, long, repository.LeaseExpired)
		a.acquired(keyA, false)
		b.take(keyA, long)
	}},
	{"RenewForeign", "renewing does nothing for a key that is free or another's", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		free := repository.Lease{Key: keyB, Attempt: repository.NewAttempt()}
		a.renew(free, long, repository.LeaseDeleted)
		a.acquired(keyB, false)
		lease := b.take(keyA, long)
		a.renew(lease, long, repository.LeaseTaken) // the right attempt, the wrong client
		b.delete(lease, true)
	}},
	{"RenewMany", "many leases are renewed in few requests, each with an answer of its own", func(t *testing.T, h Harness) {
		const n = 40
		a, b := open(t, h, "a"), open(t, h, "b")
		leases := make([]repository.Lease, n)
		want := make([]repository.LeaseState, n)
		for i := range leases {
			key := fmt.Sprintf("key-%d", i)
			leases[i], want[i] = a.take(key, 5*time.Second), repository.LeaseStands
			switch i % 20 {
			case 7:
				want[i] = repository.LeaseExpired
				h.Expire(t, "r1", key)
			case 8:
				want[i] = repository.LeaseTaken
				h.Expire(t, "r1", key)
				b.take(key, long)
			case 9:
				want[i] = repository.LeaseDeleted
				a.delete(leases[i], true)
			}
		}
		for i, got := range a.renewAll(leases, long) {
			switch {
			case got.State != want[i]:
				t.Errorf("lease %d %v, want it %v", i, got.State, want[i])
			case want[i] == repository.LeaseStands && !lasts(got, long):
				t.Errorf("lease %d has %v left, want %v", i, got.Remaining, long) // counted from before it was asked
			case want[i] == repository.LeaseTaken && got.ClientID != "b":
				t.Errorf("lease %d was taken by %q, want b", i, got.ClientID)
			}
		}
		left := make(map[string]time.Duration)
		for _, row := range a.list() {
			left[row.Key] = row.Remaining
		}
		for i, lease := range leases {
			if got := left[lease.Key]; want[i] == repository.LeaseStands && !near(got, long) || want[i] == repository.LeaseExpired && got > 0 {
				t.Errorf("lease %d (%v) has %v in the table", i, want[i], got)
			}
		}
	}},
	{"Delete", "a deleted lease is gone, and deleting twice reports it", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		a.delete(lease, true)
		a.delete(lease, false)
		a.acquired(keyA, false)
		a.renew(lease, long, repository.LeaseDeleted)
		b.take(keyA, long)
	}},
	{"DeleteExpiredLease", "an expired lease that nobody took is still its owner's to delete", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		lease := a.take(keyA, long)
		h.Expire(t, "r1", keyA)
		a.delete(lease, true)
		a.delete(lease, false)
	}},
	{"DeleteForeign", "another's lease cannot be deleted", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := b.take(keyA, long)
		a.delete(lease, false)
		b.acquired(keyA, true)
	}},
	{"DeleteExpired", "DeleteExpired removes the region's expired rows, whoever's, and no other", func(t *testing.T, h Harness) {
		a, b, other := open(t, h, "a"), open(t, h, "b"), openIn(t, h, "r2", "a")
		gone, kept := a.take(keyA, long), a.take(keyB, long)
		far := other.take(keyA, long)
		h.Expire(t, "r1", keyA)
		h.Expire(t, "r2", keyA)
		b.deleteExpired(1)
		a.renew(gone, long, repository.LeaseDeleted)
		a.delete(gone, false)
		a.delete(kept, true)
		other.delete(far, true) // expired, but still there
	}},
	{"DeleteExpiredAfter", "a step of DeleteExpired goes on behind a key, touches none before it, and comes to an end", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		const rows = 30
		for i := range rows {
			a.take(fmt.Sprintf("key-%02d", i), long)
			if i != 20 {
				h.Expire(t, "r1", fmt.Sprintf("key-%02d", i))
			}
		}
		a.deleteExpiredAfter("key-09", rows-10-1)
		a.deleteExpiredAfter("key-29", 0)
		a.acquired("key-20", true)
		if got := a.list(); len(got) != 11 || got[9].Key != "key-09" || got[10].Key != "key-20" {
			t.Errorf("left are %+v, want key-00 to key-09 and key-20", got)
		}
		a.deleteExpired(10)
		a.deleteExpired(0)
		if n, next, err := a.DeleteExpired(t.Context(), strings.Repeat("x", 37)); n != 0 || next != "" || !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("after a key that cannot be: %d, %q, %v; want ErrInvalid", n, next, err)
		}
	}},
}
