// Package repositorytest is the contract of repository.LockRepository as tests.
// The memory model and every database of this project run it; a repository of
// your own proves itself with one line:
//
//	func TestContract(t *testing.T) { repositorytest.Run(t, newHarness) }
//
// It needs nothing but the standard library.
package repositorytest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

// Harness gives the suite repositories on one store. The suite asks for a
// fresh one per clause; it may be the same database with another region.
type Harness struct {
	// Open returns a new repository of the given client. Repositories opened
	// with the same region see the same locks, with different regions never.
	// It is closed by the suite.
	Open func(t *testing.T, region, clientID string) repository.LockRepository
	// OpenWithTokens is Open for a repository that gives each grant a fencing
	// token. Nil leaves out the clauses about tokens: the store has none.
	OpenWithTokens func(t *testing.T, region, clientID string) repository.LockRepository
	// Expire ends the leases on key in region now, so that no clause has to
	// wait: on a database it moves the expiry column into the past.
	Expire func(t *testing.T, region, key string)
	// Blind says that the store cannot tell, with a refusal, how much of the
	// holder's lease is left.
	Blind bool
	// Without names clauses that cannot hold on the store, and must say why where
	// the suite is run: a table that is somebody else's has rules of its own.
	Without []string
	// Bubble runs a clause, for stores whose time is testing/synctest's. Nil
	// runs it directly.
	Bubble func(t *testing.T, clause func(t *testing.T))
}

// Run runs every clause as a subtest of t.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range slices.Concat(clauses, leaseClauses, endClauses, tokenClauses, batchClauses) {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			if slices.Contains(h.Without, c.name) {
				t.Skip("the store's own rules say otherwise")
			}
			bubble := h.Bubble
			if bubble == nil {
				bubble = func(t *testing.T, clause func(*testing.T)) { clause(t) }
			}
			bubble(t, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the rule: %s", c.rule)
					}
				})
				c.run(t, h)
			})
		})
	}
}

type clause struct {
	name, rule string
	run        func(t *testing.T, h Harness)
}

// keys are LOCK_KEYs as the registry makes them.
const (
	keyA = "acbd18db-4cc2-385c-adef-654fccc4a4d8"
	keyB = "37b51d19-4a75-33e4-9b56-f6524f2d51f2"
	long = 30 * time.Second // a lease that cannot end during a clause
)

// client is a repository with the checks that most clauses repeat.
type client struct {
	repository.LockRepository
	t *testing.T
}

func open(t *testing.T, h Harness, id string) client { return openIn(t, h, "r1", id) }

func openIn(t *testing.T, h Harness, region, id string) client {
	t.Helper()
	repo := h.Open(t, region, id)
	t.Cleanup(func() {
		if err := repo.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client{repo, t}
}

// eventually repeats f while it fails with an error that may pass by itself,
// as every caller of a repository has to.
func eventually[T any](t *testing.T, f func(context.Context) (T, error)) T {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		v, err := f(t.Context())
		if err == nil {
			return v
		}
		if !errors.Is(err, repository.ErrTransient) || time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func (c client) try(req repository.Request) repository.Outcome {
	c.t.Helper()
	return eventually(c.t, func(ctx context.Context) (repository.Outcome, error) { return c.Acquire(ctx, req) })
}

// take acquires key with a fresh attempt and fails the clause if it is held.
func (c client) take(key string, ttl time.Duration) repository.Lease {
	c.t.Helper()
	req := request(key, ttl)
	if out := c.try(req); !out.Acquired {
		c.t.Fatalf("%s: Acquire(%s) = %+v, want it acquired", c.ClientID(), key, out)
	}
	return req.Lease()
}

// refused fails the clause if key can be acquired, and returns the answer.
func (c client) refused(key string) repository.Outcome {
	c.t.Helper()
	out := c.try(request(key, long))
	if out.Acquired {
		c.t.Fatalf("%s: Acquire(%s) succeeded, want it held by another", c.ClientID(), key)
	}
	return out
}

func (c client) renew(lease repository.Lease, ttl time.Duration, want repository.LeaseState) repository.LeaseStatus {
	c.t.Helper()
	got := c.renewAll([]repository.Lease{lease}, ttl)[0]
	if got.State != want {
		c.t.Fatalf("%s: Renew = %v, want %v", c.ClientID(), got.State, want)
	}
	return got
}

// renewAll asks until every lease has an answer.
func (c client) renewAll(leases []repository.Lease, ttl time.Duration) []repository.LeaseStatus {
	c.t.Helper()
	var all []repository.LeaseStatus
	for len(all) < len(leases) {
		answers := eventually(c.t, func(ctx context.Context) ([]repository.LeaseStatus, error) {
			return c.Renew(ctx, leases[len(all):], ttl)
		})
		if len(answers) == 0 || len(answers) > len(leases)-len(all) {
			c.t.Fatalf("%s: Renew gave %d answers about %d leases", c.ClientID(), len(answers), len(leases)-len(all))
		}
		all = append(all, answers...)
	}
	return all
}

func (c client) delete(lease repository.Lease, want bool) {
	c.t.Helper()
	got := eventually(c.t, func(ctx context.Context) (bool, error) { return c.Delete(ctx, lease) })
	if got != want {
		c.t.Fatalf("%s: Delete = %v, want %v", c.ClientID(), got, want)
	}
}

func (c client) endAfter(lease repository.Lease, d time.Duration, want bool) {
	c.t.Helper()
	got := eventually(c.t, func(ctx context.Context) (bool, error) { return c.EndAfter(ctx, lease, d) })
	if got != want {
		c.t.Fatalf("%s: EndAfter = %v, want %v", c.ClientID(), got, want)
	}
}

// row is the row of key, which has to be there.
func (c client) row(key string) repository.LockInfo {
	c.t.Helper()
	return eventually(c.t, func(ctx context.Context) (repository.LockInfo, error) {
		info, found, err := c.Get(ctx, key)
		if err == nil && !found {
			c.t.Fatalf("%s: Get(%s) found no row", c.ClientID(), key)
		}
		return info, err
	})
}

func (c client) deleteExpired(want int64) {
	c.t.Helper()
	c.deleteExpiredAfter("", want)
}

func (c client) deleteExpiredAfter(after string, want int64) {
	c.t.Helper()
	var got int64
	for first := true; first || after != ""; first = false {
		after = eventually(c.t, func(ctx context.Context) (string, error) {
			n, next, err := c.DeleteExpired(ctx, after)
			got += n
			return next, err
		})
	}
	if got != want {
		c.t.Errorf("%s: DeleteExpired = %d, want %d", c.ClientID(), got, want)
	}
}

func (c client) acquired(key string, want bool) {
	c.t.Helper()
	got := eventually(c.t, func(ctx context.Context) (bool, error) { return c.IsAcquired(ctx, key) })
	if got != want {
		c.t.Fatalf("%s: IsAcquired(%s) = %v, want %v", c.ClientID(), key, got, want)
	}
}

func (c client) list() []repository.LockInfo {
	c.t.Helper()
	return eventually(c.t, func(ctx context.Context) ([]repository.LockInfo, error) { return c.List(ctx) })
}

func request(key string, ttl time.Duration) repository.Request {
	return repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: ttl, Name: "a name"}
}

// checkLeft checks the time left that a refusal told.
func (h Harness) checkLeft(t *testing.T, out repository.Outcome, want time.Duration) {
	t.Helper()
	if h.Blind && out.Remaining == 0 {
		return
	}
	if !near(out.Remaining, want) {
		t.Errorf("Remaining = %v, want about %v", out.Remaining, want)
	}
}

// near reports whether got is within some seconds below want: what is left of a
// lease of that length that was just granted, on a slow machine. A store with
// coarser time has rounded up.
func near(got, want time.Duration) bool {
	return got <= want+2*time.Millisecond && got > want-5*time.Second
}

// lasts is near for what Renew answered, which counts from before it was asked.
func lasts(got repository.LeaseStatus, want time.Duration) bool {
	return got.Remaining > want-time.Second && got.Remaining < want+time.Second
}
