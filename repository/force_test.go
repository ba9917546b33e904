package repository_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/repository"
)

// An operator takes a key from the one that was seen with it, and from nobody else.
func TestForceRelease(t *testing.T) {
	t.Parallel()
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		holder, other, operator := open("A"), open("A"), open("A")
		seen := func(key string) repository.LockInfo {
			t.Helper()
			info, found, err := operator.Get(t.Context(), key)
			if err != nil || !found {
				t.Fatalf("%q: %v, %v", key, found, err)
			}
			return info
		}
		force := func(info repository.LockInfo) bool {
			t.Helper()
			released, err := operator.ForceRelease(t.Context(), info, "ann: it hangs")
			if err != nil {
				t.Fatal(err)
			}
			return released
		}

		// Its holder loses it, and learns why. It is free.
		lease := grant(t, holder, "key")
		info := seen("key")
		if !force(info) {
			t.Fatal("not released")
		}
		statuses, err := holder.Renew(t.Context(), []repository.Lease{lease}, time.Minute)
		if err != nil || statuses[0].State != repository.LeaseTaken || statuses[0].ClientID != operator.ClientID() ||
			!strings.HasPrefix(statuses[0].Holder, "ann: it hangs") {
			t.Errorf("the holder hears %+v, %v", statuses, err)
		}
		if deleted, err := holder.Delete(t.Context(), lease); deleted || err != nil {
			t.Errorf("deleted %v, %v", deleted, err)
		}
		if left := seen("key"); left.Held() || !strings.HasPrefix(left.Holder, "ann: it hangs") {
			t.Errorf("the row is %+v", left)
		}
		if force(info) {
			t.Error("released twice")
		}

		// Who has got it since then keeps it: another, or the same client again.
		for _, next := range []*repository.DefaultLockRepository{other, holder} {
			info = seen("key")
			lease = grant(t, next, "key")
			if force(info) {
				t.Error("the next holder was hit")
			}
			info = seen("key")
			if deleted, err := next.Delete(t.Context(), lease); !deleted || err != nil {
				t.Fatalf("deleted %v, %v", deleted, err)
			}
			grant(t, next, "key")
			if force(info) {
				t.Error("a later lease of the same holder was hit")
			}
			if acquired, err := next.IsAcquired(t.Context(), "key"); !acquired || err != nil {
				t.Errorf("acquired %v, %v", acquired, err)
			}
			if !force(seen("key")) {
				t.Error("not released")
			}
		}

		// One that has expired is nobody's to lose, a Java service's is.
		grant(t, holder, "old")
		info = seen("old")
		expire(t, db, spring6, "A", "old")
		if force(info) {
			t.Error("released what had expired")
		}
		fill(t, db, spring6, rowsOf("A", 1, func(int) bool { return false }))
		if !force(seen(keyOf(0))) {
			t.Error("a row of Java's was not released")
		}
		grant(t, other, keyOf(0))

		for _, note := range []string{"", " ", strings.Repeat("x", 201), "a\x00"} {
			_, err := operator.ForceRelease(t.Context(), info, note)
			mustRefuse(t, err, "note")
		}
	})
}

func mustRefuse(t *testing.T, err error, word string) {
	t.Helper()
	if !errors.Is(err, repository.ErrInvalid) || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want that it is invalid and %q", err, word)
	}
}

// An operator keeps a lease for longer, and never for shorter.
func TestForceRenew(t *testing.T) {
	t.Parallel()
	purgeTest(t, func(t *testing.T, db *testdb.DB, spring6 bool, open func(string) *repository.DefaultLockRepository) {
		holder, operator := open("A"), open("A")
		renew := func(key string, ttl time.Duration) bool {
			t.Helper()
			held, err := operator.ForceRenew(t.Context(), key, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		lease := grant(t, holder, "key")
		for _, step := range []struct{ ttl, least, most time.Duration }{
			{time.Hour, 59 * time.Minute, time.Hour}, {time.Minute, 58 * time.Minute, time.Hour},
		} {
			if !renew("key", step.ttl) {
				t.Fatal("not renewed")
			}
			if info, _, err := operator.Get(t.Context(), "key"); err != nil || info.Remaining < step.least || info.Remaining > step.most || info.ClientID != holder.ClientID() {
				t.Errorf("%v: %+v, %v", step.ttl, info, err)
			}
		}
		if deleted, err := holder.Delete(t.Context(), lease); !deleted || err != nil {
			t.Errorf("deleted %v, %v", deleted, err)
		}
		if renew("key", time.Minute) {
			t.Error("renewed what is free")
		}
		grant(t, holder, "old")
		expire(t, db, spring6, "A", "old")
		if renew("old", time.Minute) {
			t.Error("renewed what had expired")
		}
		_, err := operator.ForceRenew(t.Context(), "key", 0)
		mustRefuse(t, err, "TTL")
	})
}

// All regions can be looked into from one repository.
func TestRegions(t *testing.T) {
	t.Parallel()
	purgeTest(t, func(t *testing.T, _ *testdb.DB, _ bool, open func(string) *repository.DefaultLockRepository) {
		first := open("B")
		if regions, err := first.Regions(t.Context()); len(regions) != 0 || err != nil {
			t.Errorf("%v, %v", regions, err)
		}
		grant(t, first, "one")
		grant(t, first, "two")
		grant(t, open("A"), "three")
		if regions, err := first.Regions(t.Context()); err != nil || !slices.Equal(regions, []string{"A", "B"}) {
			t.Errorf("%v, %v", regions, err)
		}
		for region, want := range map[string][]string{"A": {"three"}, "B": {"one", "two"}, "C": nil} {
			infos, err := first.ListRegion(t.Context(), region)
			var keys []string
			for _, info := range infos {
				keys = append(keys, info.Key)
			}
			if err != nil || !slices.Equal(keys, want) {
				t.Errorf("%s: %v, %v", region, keys, err)
			}
		}
	})
}
