package repositorytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/intlock/intlock/repository"
)

// batchClauses are for a repository.BatchRepository. Others skip them.
var batchClauses = []clause{
	{"BatchOwnOutcomes", "each request of a batch has its own outcome, in the order of the requests, as if made alone", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		reqs := make([]repository.Request, 40)
		for i := range reqs {
			reqs[i] = request(fmt.Sprintf("key-%02d", (i*17)%40), long) // not in their order
			switch i % 8 {
			case 1: // held by another
				b.take(reqs[i].Key, long)
			case 2: // expired
				b.take(reqs[i].Key, long)
				h.Expire(t, "r1", reqs[i].Key)
			case 3: // its own already
				a.try(reqs[i])
			case 4: // held by another attempt of its client
				a.take(reqs[i].Key, long)
			}
		}
		for round := range 2 { // the second time the free ones are its own
			for i, got := range a.tryBatch(reqs) {
				wantHeld := i%8 == 1 || i%8 == 4
				switch {
				case got.Acquired == wantHeld:
					t.Errorf("round %d, request %d: %+v, want it held: %v", round, i, got, wantHeld)
				case wantHeld:
					h.checkLeft(t, got, long)
					if want := map[int]string{1: "b", 4: "a"}[i%8]; got.ClientID != want && got.ClientID != "" {
						t.Errorf("round %d, request %d: held by %q, want %q", round, i, got.ClientID, want)
					}
				case got.ClientID != "" || got.Holder != "" || got.Remaining != 0:
					t.Errorf("round %d, request %d: %+v, want nothing about a holder", round, i, got)
				}
			}
		}
		rows := a.list()
		if len(rows) != len(reqs) {
			t.Errorf("%d rows, want %d", len(rows), len(reqs))
		}
		for _, row := range rows {
			if !near(row.Remaining, long) || row.Name != "a name" || row.Holder == "" {
				t.Errorf("%+v, want a row with name, holder and all of its time", row)
			}
		}
		for i, req := range reqs {
			b.delete(req.Lease(), false) // another's
			a.delete(req.Lease(), i%8 != 1 && i%8 != 4)
		}
	}},
	{"BatchHeldLeavesRow", "a batch that is refused changes nothing", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		var reqs []repository.Request
		for i := range 20 {
			req := request(fmt.Sprintf("key-%02d", i), long)
			a.try(req)
			reqs = append(reqs, request(req.Key, 2*long))
		}
		before := a.list()
		for range 3 {
			for _, out := range b.tryBatch(reqs) {
				if out.Acquired || out.Token != 0 {
					t.Fatalf("%+v, want it held", out)
				}
			}
		}
		for i, row := range a.list() {
			if row.Remaining > before[i].Remaining || row.ClientID != "a" {
				t.Errorf("row was %+v, is %+v", before[i], row)
			}
		}
	}},
	{"BatchTTLs", "each request of a batch has its own TTL, and none shortens a lease", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		short, lasting := request(keyA, 5*time.Second), request(keyB, 2*long)
		reqs := []repository.Request{short, lasting}
		a.tryBatch(reqs)
		h.checkLeft(t, b.refused(keyA), 5*time.Second)
		h.checkLeft(t, b.refused(keyB), 2*long)
		reqs[0].TTL, reqs[1].TTL = long, long
		a.tryBatch(reqs)
		h.checkLeft(t, b.refused(keyA), long)
		h.checkLeft(t, b.refused(keyB), 2*long)
	}},
	{"BatchNames", "names of any length and any bytes, and keys of any character, go through a batch", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		names := []string{"", "plain", strings.Repeat("x", 10_000), strings.Repeat("日", 200), "a\x00b", "\xff\xfe", "NULL", "{},\"\\\"",
			"'; DROP TABLE INT_LOCK; --", "%s %d :x ? $1 \\ 😀", "tab\t newline\n \x01\x1f\x7f", "\\u0041 \\n é"}
		var reqs []repository.Request
		for i, name := range names {
			req := request(fmt.Sprintf("k%02d {}[],:?$1'\"\\%%NULL`~", i), long)
			req.Name = name
			reqs = append(reqs, req)
		}
		reqs[1].Key = "NULL"
		for i, out := range a.tryBatch(reqs) {
			if !out.Acquired {
				t.Errorf("name %.20q: %+v", names[i], out)
			}
		}
		rows := make(map[string]string)
		for _, row := range a.list() {
			rows[row.Key] = row.Name
		}
		for i, req := range reqs {
			got, ok := rows[req.Key]
			if !ok {
				t.Errorf("key %q is not listed", req.Key)
			}
			if name := names[i]; len(name) < 200 && utf8.ValidString(name) && !strings.ContainsRune(name, 0) && got != name {
				t.Errorf("name %q is listed as %q", name, got)
			}
		}
		for i, deleted := range a.deleteBatch(leasesOf(reqs)) {
			if !deleted {
				t.Errorf("key %q was not deleted", reqs[i].Key)
			}
		}
	}},
	{"BatchBadNeighbour", "a bad request of a batch is refused by name, and the others are executed", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		reqs := []repository.Request{request(keyB, long), request("", long), request(keyA, 0), request("日本", long), request("other", long), request(keyA, long)}
		reqs[4].Attempt = 0
		for i, got := range a.batch(reqs) {
			bad := i >= 1 && i <= 4
			if bad != errors.Is(got.Err, repository.ErrInvalid) || bad == got.Value.Acquired {
				t.Errorf("request %d: %+v", i, got)
			}
		}
		if rows := a.list(); len(rows) != 2 {
			t.Errorf("%+v, want two rows", rows)
		}
		leases := []repository.Lease{reqs[0].Lease(), {Key: "blank ", Attempt: 1}, reqs[5].Lease()}
		answers := eventually(t, func(ctx context.Context) ([]repository.Answer[bool], error) {
			return a.batches().DeleteBatch(ctx, leases)
		})
		for i, got := range answers {
			if bad := i == 1; bad != errors.Is(got.Err, repository.ErrInvalid) || bad == got.Value {
				t.Errorf("lease %d: %+v", i, got)
			}
		}
		if got, err := a.batches().AcquireBatch(t.Context(), nil); len(got) != 0 || err != nil {
			t.Errorf("a batch of nothing: %v, %v", got, err)
		}
		if got, err := a.batches().DeleteBatch(t.Context(), nil); len(got) != 0 || err != nil {
			t.Errorf("a batch of nothing: %v, %v", got, err)
		}
	}},
	{"BatchDelete", "a batch deletes its own rows, expired ones too, no other, and says which", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		var leases []repository.Lease
		for i := range 40 {
			lease := a.take(fmt.Sprintf("key-%02d", (i*13)%40), long)
			switch i % 8 {
			case 1: // expired
				h.Expire(t, "r1", lease.Key)
			case 2: // taken over
				h.Expire(t, "r1", lease.Key)
				b.take(lease.Key, long)
			case 3: // another attempt's
				lease.Attempt = repository.NewAttempt()
			case 4: // gone
				a.delete(lease, true)
			}
			leases = append(leases, lease)
		}
		for i, deleted := range a.deleteBatch(leases) {
			if want := i%8 < 2 || i%8 > 4; deleted != want {
				t.Errorf("lease %d: deleted %v, want %v", i, deleted, want)
			}
		}
		if rows := a.list(); len(rows) != 10 {
			t.Errorf("%d rows are left, want the 10 of others", len(rows))
		}
		for i, deleted := range a.deleteBatch(leases) {
			if deleted {
				t.Errorf("lease %d was deleted again", i)
			}
		}
	}},
	{"BatchLarge", "a batch of any size is answered in parts of one request at least", func(t *testing.T, h Harness) {
		a, b := open(t, h, "a"), open(t, h, "b")
		for _, n := range []int{1, 2, 256, 300} {
			reqs := make([]repository.Request, n)
			for i := range reqs {
				reqs[i] = request(fmt.Sprintf("key-%03d", n-i), long)
			}
			for i, out := range a.tryBatch(reqs) {
				if !out.Acquired {
					t.Fatalf("%d of %d: %+v", i, n, out)
				}
			}
			b.refused("key-001")
			for i, deleted := range a.deleteBatch(leasesOf(reqs)) {
				if !deleted {
					t.Fatalf("%d of %d was not deleted", i, n)
				}
			}
			if rows := a.list(); len(rows) != 0 {
				t.Fatalf("%d rows are left", len(rows))
			}
		}
	}},
	{"BatchRegions", "a batch keeps to its region and to exact keys", func(t *testing.T, h Harness) {
		lower, upper := openIn(t, h, "r1", "a"), openIn(t, h, "R1", "b")
		reqs := []repository.Request{request("Job", long), request("job", long)}
		for _, c := range []client{lower, upper} {
			for _, out := range c.tryBatch(reqs) {
				if !out.Acquired {
					t.Errorf("%+v", out)
				}
			}
		}
		lower.deleteBatch(leasesOf(reqs))
		upper.acquired("Job", true)
		upper.acquired("job", true)
	}},
	{"BatchTokens", "each grant of a batch has a token of its own, a multiple of TokenStep above the key's last", func(t *testing.T, h Harness) {
		h = h.withTokens(t)
		a, b := open(t, h, "a"), open(t, h, "b")
		last := make(map[string]int64)
		for round := range 4 {
			var reqs []repository.Request
			for i := range 20 {
				reqs = append(reqs, request(fmt.Sprintf("key-%02d", i), long))
			}
			if round == 2 {
				h.Expire(t, "r1", reqs[7].Key)
			}
			held := round == 3
			c := a
			if held {
				c = b
			}
			seen := make(map[int64]bool)
			for i, out := range c.tryBatch(reqs) {
				key := reqs[i].Key
				if held {
					if out.Acquired || out.Token != 0 {
						t.Errorf("%s: %+v, want it held", key, out)
					}
					continue
				}
				if !out.Acquired || out.Token <= last[key] || out.Token%repository.TokenStep != 0 || seen[out.Token] {
					t.Errorf("round %d, %s: %+v after token %d", round, key, out, last[key])
				}
				seen[out.Token], last[key] = true, out.Token
			}
			if round < 2 {
				a.deleteBatch(leasesOf(reqs))
				token := last[reqs[3].Key]
				b.delete(b.takeToken(reqs[3].Key, &token), true) // alone, in between
				last[reqs[3].Key] = token
			}
		}
	}},
	{"BatchEndedContext", "an ended context is an error about the batch, and never an answer", func(t *testing.T, h Harness) {
		a := open(t, h, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reqs := []repository.Request{request(keyA, long), request(keyB, long)}
		if got, err := a.batches().AcquireBatch(ctx, reqs); !errors.Is(err, repository.ErrTransient) && !h.allAlone(got) {
			t.Errorf("AcquireBatch = %+v, %v, want ErrTransient", got, err)
		}
		if got, err := a.batches().DeleteBatch(ctx, leasesOf(reqs)); !errors.Is(err, repository.ErrTransient) {
			t.Errorf("DeleteBatch = %+v, %v, want ErrTransient", got, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.batches().AcquireBatch(t.Context(), reqs); !errors.Is(err, repository.ErrClosed) {
			t.Errorf("AcquireBatch after Close: %v, want ErrClosed", err)
		}
		if _, err := a.batches().DeleteBatch(t.Context(), leasesOf(reqs)); !errors.Is(err, repository.ErrClosed) {
			t.Errorf("DeleteBatch after Close: %v, want ErrClosed", err)
		}
	}},
	{"BatchRace", "of many clients with batches that overlap one at a time has a key, and with a higher token than the one before", func(t *testing.T, h Harness) {
		if h.OpenWithTokens != nil {
			h = h.withTokens(t)
		}
		const keys = 12
		var owners [keys]atomic.Int32
		var tokens [keys]int64 // written by the owner
		var wg sync.WaitGroup
		for n := range 4 {
			c := open(t, h, string(rune('a'+n)))
			wg.Go(func() {
				for round := range 8 {
					var reqs []repository.Request
					for i := range keys {
						if key := (i*5 + n) % keys; (i+round+n)%3 != 0 {
							reqs = append(reqs, request(fmt.Sprintf("key-%02d", key), long))
						}
					}
					var won []repository.Lease
					var indexes []int
					for i, out := range c.tryBatch(reqs) {
						if !out.Acquired {
							continue
						}
						var key int
						fmt.Sscanf(reqs[i].Key, "key-%d", &key)
						if owners[key].Add(1) != 1 {
							t.Errorf("two clients have %s", reqs[i].Key)
						}
						if h.OpenWithTokens != nil && out.Token <= tokens[key] {
							t.Errorf("%s has token %d after %d", reqs[i].Key, out.Token, tokens[key])
						}
						tokens[key] = out.Token
						won, indexes = append(won, reqs[i].Lease()), append(indexes, key)
					}
					for _, key := range indexes {
						owners[key].Add(-1)
					}
					c.deleteBatch(won)
				}
			})
		}
		wg.Wait()
		if rows := open(t, h, "z").list(); len(rows) != 0 {
			t.Errorf("%d rows are left", len(rows))
		}
	}},
}
