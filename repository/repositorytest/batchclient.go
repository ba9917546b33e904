package repositorytest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

// batches skips the clause if the store takes one request at a time.
func (c client) batches() repository.BatchRepository {
	c.t.Helper()
	b, ok := c.LockRepository.(repository.BatchRepository)
	if !ok {
		c.t.Skip("the repository takes one request at a time")
	}
	return b
}

// batch asks until every request has an answer, and makes alone what the
// repository wants to be asked alone, as every caller has to.
func (c client) batch(reqs []repository.Request) []repository.Answer[repository.Outcome] {
	c.t.Helper()
	return together(c.t, reqs, c.batches().AcquireBatch, c.Acquire)
}

func (c client) tryBatch(reqs []repository.Request) []repository.Outcome {
	c.t.Helper()
	return values(c.t, c.batch(reqs))
}

func (c client) deleteBatch(leases []repository.Lease) []bool {
	c.t.Helper()
	return values(c.t, together(c.t, leases, c.batches().DeleteBatch, c.Delete))
}

func values[A any](t *testing.T, answers []repository.Answer[A]) []A {
	t.Helper()
	all := make([]A, len(answers))
	for i, a := range answers {
		if a.Err != nil {
			t.Errorf("request %d: %v", i, a.Err)
		}
		all[i] = a.Value
	}
	return all
}

func together[Q, A any](t *testing.T, reqs []Q, batch func(context.Context, []Q) ([]repository.Answer[A], error), alone func(context.Context, Q) (A, error)) []repository.Answer[A] {
	t.Helper()
	var all []repository.Answer[A]
	for len(all) < len(reqs) {
		rest := reqs[len(all):]
		answers, err := batch(t.Context(), rest)
		for start := time.Now(); errors.Is(err, repository.ErrTransient) && time.Since(start) < 10*time.Second; {
			time.Sleep(5 * time.Millisecond)
			answers, err = batch(t.Context(), rest)
		}
		if err != nil {
			t.Errorf("a batch of %d: %v", len(rest), err)
			return make([]repository.Answer[A], len(reqs))
		}
		if len(answers) == 0 || len(answers) > len(rest) {
			t.Errorf("%d answers about %d requests", len(answers), len(rest))
			return make([]repository.Answer[A], len(reqs))
		}
		for i, a := range answers {
			for start := time.Now(); errors.Is(a.Err, repository.ErrAlone) || errors.Is(a.Err, repository.ErrTransient) && time.Since(start) < 10*time.Second; {
				if a.Value, a.Err = alone(t.Context(), rest[i]); a.Err != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
			all = append(all, a)
		}
	}
	return all
}

// allAlone reports whether every answer is ErrAlone, as it is to acquires of a
// store that is Blind because of its custom queries.
func (h Harness) allAlone(answers []repository.Answer[repository.Outcome]) bool {
	return h.Blind && !slices.ContainsFunc(answers, func(a repository.Answer[repository.Outcome]) bool { return !errors.Is(a.Err, repository.ErrAlone) })
}

func leasesOf(reqs []repository.Request) []repository.Lease {
	leases := make([]repository.Lease, len(reqs))
	for i, req := range reqs {
		leases[i] = req.Lease()
	}
	return leases
}
