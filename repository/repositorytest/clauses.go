package repositorytest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/intlock/intlock/repository"
)

// Where a clause restates a behaviour that Spring tests, its comment in
// docs/spring.md has Spring's number.
var clauses = []clause{
	{"FreeKey", "a free key is acquired, and its holder is told so", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		a.acquired(keyA, false)
		a.take(keyA, long)
		a.acquired(keyA, true)
	}},
	{"Polling", "a request of an attempt that was refused before is answered like a first one", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		req := request(keyA, long)
		for range 2 {
			out := b.try(req)
			if out.Acquired || !h.Blind && (out.ClientID != "" && out.ClientID != "a" || req.Polling && out.ClientID != "a") {
				t.Fatalf("%+v, want it held by a", out)
			}
			h.checkLeft(t, out, long)
			req.Polling = true
		}
		a.delete(lease, true)
		for range 2 { // free, then its own
			if out := b.try(req); !out.Acquired {
				t.Fatalf("%+v, want it acquired", out)
			}
		}
		h.Expire(t, "r1", keyA)
		other := request(keyA, long)
		other.Polling = true
		if out := a.try(other); !out.Acquired {
			t.Fatalf("%+v, want an expired lease taken over", out)
		}
	}},
	{"Held", "a live lease of another client is answered with holder and time left, without an error", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		a.take(keyA, long)
		out := b.refused(keyA)
		h.checkLeft(t, out, long)
		if out.ClientID != "" && out.ClientID != "a" {
			t.Errorf("ClientID = %q, want a or nothing", out.ClientID)
		}
		b.acquired(keyA, false)
		a.acquired(keyA, true)
	}},
	{"HeldLeavesRow", "a refused attempt changes nothing in the row", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		lease := a.take(keyA, long)
		before := a.list()[0]
		for range 20 {
			b.refused(keyA)
		}
		after := a.list()[0]
		if after.Remaining > before.Remaining || after.ClientID != "a" || after.Name != before.Name {
			t.Errorf("row was %+v, is %+v", before, after)
		}
		a.delete(lease, true)
	}},
	{"SameAttempt", "the same attempt may acquire again: its lease is prolonged, never shortened", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		req := request(keyA, 2*time.Second)
		a.try(req)
		req.TTL = long
		if out := a.try(req); !out.Acquired {
			t.Fatalf("second Acquire of the same attempt = %+v", out)
		}
		h.checkLeft(t, b.refused(keyA), long)
		req.TTL = time.Second // as a request that comes late
		if out := a.try(req); !out.Acquired {
			t.Fatalf("third Acquire of the same attempt = %+v", out)
		}
		h.checkLeft(t, b.refused(keyA), long)
		a.delete(req.Lease(), true)
	}},
	{"OtherAttempt", "another attempt of the same client is another owner", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		lease := a.take(keyA, long)
		a.refused(keyA)
		a.delete(repository.Lease{Key: keyA, Attempt: repository.NewAttempt()}, false)
		a.renew(repository.Lease{Key: keyA, Attempt: repository.NewAttempt()}, long, repository.LeaseTaken)
		a.delete(lease, true)
	}},
	{"SameClientID", "two repositories with one client id exclude each other, and cannot free each other's locks", func(t *testing.T, h Harness) {
		one, two := open(t, h, "twin"), open(t, h, "twin")
		lease := one.take(keyA, long)
		two.refused(keyA)
		if err := two.Close(); err != nil {
			t.Fatal(err)
		}
		one.renew(lease, long, repository.LeaseStands)
		one.delete(lease, true)
	}},
	{"LateAttempt", "a late request of an earlier attempt cannot touch a later lease of the same client", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		first, second := request(keyA, long), request(keyA, long)
		a.try(first)
		a.delete(first.Lease(), true)
		a.try(second)
		if out := a.try(first); out.Acquired {
			t.Fatal("the late request took the lock from the later attempt")
		}
		a.renew(first.Lease(), long, repository.LeaseTaken)
		a.delete(first.Lease(), false)
		a.renew(second.Lease(), long, repository.LeaseStands)
		a.delete(second.Lease(), true)
	}},
	{"Expired", "an expired lease is taken over by another client", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		old := a.take(keyA, long)
		h.Expire(t, "r1", keyA)
		a.acquired(keyA, false)
		lease := b.take(keyA, long)
		a.acquired(keyA, false)
		b.acquired(keyA, true)
		if by := a.renew(old, long, repository.LeaseTaken); by.ClientID != "b" {
			t.Errorf("taken by %q, want b", by.ClientID)
		}
		a.delete(old, false)
		b.delete(lease, true)
	}},
	{"ExpiresByItself", "a lease ends after its TTL, not before and not much later", func(t *testing.T, h Harness) {
		const ttl = 400 * time.Millisecond
		a, b := open(t, h, "a"), open(t, h, "b")
		sent := time.Now()
		a.take(keyA, ttl)
		granted := time.Now()
		for {
			asked := time.Now()
			if out := b.try(request(keyA, long)); out.Acquired {
				if took := time.Since(sent); took < ttl-2*time.Millisecond {
					t.Fatalf("taken over after %v, the TTL is %v", took, ttl)
				}
				return
			}
			if asked.Sub(granted) > ttl+time.Second {
				t.Fatalf("still held %v after the grant, the TTL is %v", asked.Sub(granted), ttl)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}},
	{"TwoKeys", "two keys are two locks", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		first := a.take(keyA, long)
		b.take(keyB, long)
		a.delete(first, true)
		a.refused(keyB)
	}},
	{"Regions", "regions are disjoint, in case too", func(t *testing.T, h Harness) {
		lower, upper := openIn(t, h, "r1", "a"), openIn(t, h, "R1", "b")
		lease := lower.take(keyA, long)
		upper.take(keyA, long)
		if got := len(lower.list()); got != 1 {
			t.Errorf("the region lists %d locks, want 1", got)
		}
		lower.delete(lease, true)
		upper.acquired(keyA, true)
	}},
	{"KeysAreExact", "keys that differ in case only are two, and a short client id is recognised", func(t *testing.T, h Harness) {
		a, b := open(t, h, "n1"), open(t, h, "N1")
		a.take("Job", long)
		lease := b.take("job", long)
		a.refused("job")
		a.acquired("Job", true)
		a.acquired("job", false)
		b.acquired("Job", false)
		b.delete(lease, true)
	}},
	{"List", "List shows the rows in order, with name, holder and time left, expired ones too", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		if got := a.list(); len(got) != 0 {
			t.Fatalf("an empty region lists %+v", got)
		}
		a.take(keyA, long)
		b.take(keyB, long)
		h.Expire(t, "r1", keyB)
		got := a.list()
		if len(got) != 2 || got[0].Key != keyB || got[1].Key != keyA {
			t.Fatalf("List = %+v, want %s then %s", got, keyB, keyA)
		}
		if got[0].Remaining >= 0 || !near(got[1].Remaining, long) {
			t.Errorf("Remaining %v and %v, want one below zero and one about %v", got[0].Remaining, got[1].Remaining, long)
		}
		if got[1].ClientID != "a" || got[1].Name != "a name" || got[1].Holder == "" {
			t.Errorf("row = %+v, want client a, its name and its holder", got[1])
		}
	}},
	{"LongNames", "a name of any length and any bytes never keeps a lock from being taken", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		for _, name := range []string{"", strings.Repeat("x", 10_000), strings.Repeat("日", 200), "a\x00b", "\xff\xfe", "'; DROP TABLE INT_LOCK; --", "%s %d :x ? $1 \\ 😀"} {
			req := request(keyA, long)
			req.Name = name
			if out := a.try(req); !out.Acquired {
				t.Fatalf("name %.20q: %+v", name, out)
			}
			if got := a.list()[0].Name; len(name) < 200 && utf8.ValidString(name) && !strings.ContainsRune(name, 0) && got != name {
				t.Errorf("name %q is listed as %q", name, got)
			}
			a.delete(req.Lease(), true)
		}
	}},
	{"BadArguments", "an invalid key, attempt or TTL is refused by name, and nothing is stored", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		good := request(keyA, long)
		for what, change := range map[string]func(*repository.Request){
			"an empty key":          func(r *repository.Request) { r.Key = "" },
			"a key too long":        func(r *repository.Request) { r.Key = strings.Repeat("k", 37) },
			"a key with NUL":        func(r *repository.Request) { r.Key = "a\x00" },
			"a key not ASCII":       func(r *repository.Request) { r.Key = "日本" },
			"a key ending in blank": func(r *repository.Request) { r.Key = "Job " },
			"TTL 0":                 func(r *repository.Request) { r.TTL = 0 },
			"a negative TTL":        func(r *repository.Request) { r.TTL = -time.Second },
			"a TTL below 1 ms":      func(r *repository.Request) { r.TTL = 999 * time.Microsecond },
			"attempt 0":             func(r *repository.Request) { r.Attempt = 0 },
		} {
			req := good
			change(&req)
			if _, err := a.Acquire(t.Context(), req); !errors.Is(err, repository.ErrInvalid) || errors.Is(err, repository.ErrTransient) {
				t.Errorf("%s: Acquire error = %v, want ErrInvalid", what, err)
			}
		}
		if _, err := a.Renew(t.Context(), []repository.Lease{good.Lease()}, 0); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("Renew with TTL 0: %v, want ErrInvalid", err)
		}
		if _, err := a.Renew(t.Context(), []repository.Lease{good.Lease(), {Attempt: 1}}, long); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("Renew of an empty key: %v, want ErrInvalid", err)
		}
		if got, err := a.Renew(t.Context(), nil, long); len(got) != 0 || err != nil {
			t.Errorf("Renew of nothing: %v, %v", got, err)
		}
		if got := a.list(); len(got) != 0 {
			t.Errorf("stored all the same: %+v", got)
		}
	}},
	{"EndedContext", "an ended context is an error, never an answer, and what it left can be cleaned up", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := request(keyA, long)
		if out, err := a.Acquire(ctx, req); !errors.Is(err, repository.ErrTransient) {
			t.Errorf("Acquire = %+v, %v, want ErrTransient", out, err)
		}
		eventually(t, func(ctx context.Context) (bool, error) { return a.Delete(ctx, req.Lease()) })
		b.take(keyA, long)
	}},
	{"OneWinner", "of many clients at once exactly one gets the key, round after round", func(t *testing.T, h Harness) {
		const clients, rounds = 8, 10
		var all []client
		for i := range clients {
			all = append(all, open(t, h, "c"+string(rune('0'+i))))
		}
		for range rounds {
			var mu sync.Mutex
			var won []repository.Lease
			var winner client
			var wg sync.WaitGroup
			for _, c := range all {
				wg.Go(func() {
					req := request(keyA, long)
					for {
						out, err := c.Acquire(t.Context(), req)
						if errors.Is(err, repository.ErrTransient) {
							time.Sleep(5 * time.Millisecond)
							continue
						}
						if err != nil {
							t.Error(err)
						}
						if out.Acquired {
							mu.Lock()
							won, winner = append(won, req.Lease()), c
							mu.Unlock()
						}
						return
					}
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("%d clients hold the key, want 1", len(won))
			}
			winner.delete(won[0], true)
		}
	}},
	{"CloseKeepsRows", "Close frees no lock, may be called twice, and ends the repository", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		a.take(keyA, long)
		for range 2 {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		b.refused(keyA)
		if _, err := a.Acquire(t.Context(), request(keyB, long)); !errors.Is(err, repository.ErrClosed) {
			t.Errorf("Acquire after Close: %v, want ErrClosed", err)
		}
		if _, err := a.IsAcquired(t.Context(), keyA); !errors.Is(err, repository.ErrClosed) {
			t.Errorf("IsAcquired after Close: %v, want ErrClosed", err)
		}
	}},
}
