package repositorytest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

var tokenClauses = []clause{
	{"TokenRises", "each grant of a key has a higher token, whatever ended the one before", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		a, b, other := open(t, h, "a"), open(t, h, "b"), openIn(t, h, "r2", "a")
		var last int64
		for range 3 {
			lease := a.takeToken(keyA, &last)
			a.delete(lease, true)
			b.takeToken(keyA, &last)
			h.Expire(t, "r1", keyA)
			lease = a.takeToken(keyA, &last)
			var elsewhere int64
			other.delete(other.takeToken(keyA, &elsewhere), true)
			h.Expire(t, "r1", keyA)
			b.deleteExpired(1)
			a.delete(lease, false)
			lease = b.takeToken(keyA, &last)
			b.renew(lease, long, repository.LeaseStands)
			b.delete(lease, true)
		}
	}},
	{"TokenOutlivesClose", "tokens go on where an earlier repository, and an empty table, left them", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		var last int64
		for range 3 {
			a := open(t, h, "a")
			a.delete(a.takeToken(keyA, &last), true)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"TokenOfSameAttempt", "an attempt that asks again gets a token that is no lower, and below the next grant's", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		a, b := open(t, h, "a"), open(t, h, "b")
		req := request(keyA, long)
		var last int64
		for range 3 {
			out := a.try(req)
			if !out.Acquired || out.Token < last {
				t.Fatalf("the same attempt again = %+v, want a token of %d at least", out, last)
			}
			last = out.Token
		}
		a.delete(req.Lease(), true)
		b.takeToken(keyA, &last)
	}},
	{"TokenOfRefusal", "a refused attempt has no token, and a late one of an earlier grant none either", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		a, b := open(t, h, "a"), open(t, h, "b")
		req := request(keyA, long)
		a.try(req)
		if out := b.refused(keyA); out.Token != 0 {
			t.Errorf("a refusal has token %d", out.Token)
		}
		h.Expire(t, "r1", keyA)
		var last int64
		b.takeToken(keyA, &last)
		if out := a.try(req); out.Acquired || out.Token != 0 {
			t.Errorf("an attempt whose lease was taken over = %+v, want it refused", out)
		}
	}},
	{"TokenRace", "of many clients at once, round after round, each winner has a higher token", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		var all []client
		for _, id := range []string{"a", "b", "c", "d"} {
			all = append(all, open(t, h, id))
		}
		var mu sync.Mutex // guards tokens
		var tokens []int64
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				for got := 0; got < 10; {
					req := request(keyA, long)
					out, err := c.Acquire(t.Context(), req)
					for errors.Is(err, repository.ErrTransient) {
						time.Sleep(5 * time.Millisecond)
						out, err = c.Acquire(t.Context(), req)
					}
					if err != nil {
						t.Error(err)
						return
					}
					if !out.Acquired {
						time.Sleep(time.Millisecond)
						continue
					}
					got++
					mu.Lock()
					tokens = append(tokens, out.Token)
					mu.Unlock()
					for {
						if _, err = c.Delete(t.Context(), req.Lease()); !errors.Is(err, repository.ErrTransient) {
							break
						}
						time.Sleep(5 * time.Millisecond)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range tokens {
			if i > 0 && tokens[i] <= tokens[i-1] {
				t.Fatalf("grant %d has token %d, the one before %d", i, tokens[i], tokens[i-1])
			}
		}
	}},
}

// takeToken is take for a grant whose token must be above last, and becomes it.
func (c client) takeToken(key string, last *int64) repository.Lease {
	c.t.Helper()
	req := request(key, long)
	out := c.try(req)
	if !out.Acquired || out.Token <= *last {
		c.t.Fatalf("%s: Acquire(%s) = %+v, want it acquired with a token above %d", c.ClientID(), key, out, *last)
	}
	*last = out.Token
	return req.Lease()
}

// withTokens is h for a clause about tokens. A store without them skips it.
func (h Harness) withTokens(t *testing.T) Harness {
	if h.OpenWithTokens == nil {
		t.Skip("the store has no tokens")
	}
	h.Open = h.OpenWithTokens
	return h
}
