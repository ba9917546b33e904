package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
)

// TestVerify: what becomes of an answer, and what needs no question.
func TestVerify(t *testing.T) {
	broken := errors.New("the connection is broken")
	for _, c := range []struct {
		name   string
		before func(hold *registry.Hold)            // before the question
		during func(hold *registry.Hold)            // while it is asked
		state  repository.LeaseState                // the answer
		err    error                                // and its error
		want   func(err error, held bool) (ok bool) // the result, and what Held says then
		asked  bool
	}{
		{name: "stands", state: repository.LeaseStands, asked: true,
			want: func(err error, held bool) bool { return err == nil && held }},
		{name: "expired", state: repository.LeaseExpired, asked: true,
			want: func(err error, held bool) bool { return lostBy(err, registry.LossExpired) && !held }},
		{name: "taken", state: repository.LeaseTaken, asked: true,
			want: func(err error, held bool) bool { return lostBy(err, registry.LossTaken) && !held }},
		{name: "deleted", state: repository.LeaseDeleted, asked: true,
			want: func(err error, held bool) bool { return lostBy(err, registry.LossDeleted) && !held }},
		{name: "no answer", asked: true,
			want: func(err error, held bool) bool { return err != nil && !errors.Is(err, registry.ErrLockLost) && held }},
		{name: "no decision", state: repository.LeaseBusy, asked: true,
			want: func(err error, held bool) bool { return err != nil && !errors.Is(err, registry.ErrLockLost) && held }},
		{name: "an error", err: broken, asked: true,
			want: func(err error, held bool) bool {
				return errors.Is(err, broken) && strings.Contains(err.Error(), `"foo"`) && held
			}},
		{name: "an error with an answer", state: repository.LeaseDeleted, err: broken, asked: true,
			want: func(err error, held bool) bool { return errors.Is(err, broken) && held }},
		{name: "unlocked before", before: func(hold *registry.Hold) { hold.Unlock(bg()) }, state: repository.LeaseStands,
			want: func(err error, held bool) bool { return errors.Is(err, registry.ErrNotHeld) && !held }},
		{name: "ran out before", before: func(*registry.Hold) { time.Sleep(time.Minute) }, state: repository.LeaseStands,
			want: func(err error, held bool) bool { return lostBy(err, registry.LossExpired) && !held }},
		{name: "unlocked meanwhile", during: func(hold *registry.Hold) { hold.Unlock(bg()) }, state: repository.LeaseDeleted, asked: true,
			want: func(err error, held bool) bool {
				return errors.Is(err, registry.ErrNotHeld) && !errors.Is(err, registry.ErrLockLost) && !held
			}},
		{name: "ran out meanwhile", during: func(*registry.Hold) { time.Sleep(time.Minute) }, state: repository.LeaseStands, asked: true,
			want: func(err error, held bool) bool { return lostBy(err, registry.LossExpired) && !held }},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, repo *registrytest.Around) {
				hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithRenewal(false))
				if err != nil {
					t.Fatal(err)
				}
				defer hold.Unlock(bg())
				if c.before != nil {
					c.before(hold)
				}
				asked := false
				err = hold.Verify(bg(), func(_ context.Context, got repository.LockRepository, lease repository.Lease) (repository.LeaseStatus, error) {
					asked = true
					if got != repo || lease.Key != registry.PathFor("foo") || lease.Attempt <= 0 {
						t.Errorf("asked about %+v of %v", lease, got)
					}
					if c.during != nil {
						c.during(hold)
					}
					return repository.LeaseStatus{State: c.state}, c.err
				})
				if !c.want(err, hold.Held()) || asked != c.asked {
					t.Errorf("%v, held %v, asked %v", err, hold.Held(), asked)
				}
			})
		})
	}
}

func lostBy(err error, reason registry.LossReason) bool {
	lost, ok := err.(*registry.LostError)
	return ok && lost.Reason == reason
}

// TestVerifyEndsWithTheLease: who asks may wait no longer than the lease is
// trusted, and no longer than the caller wants.
func TestVerifyEndsWithTheLease(t *testing.T) {
	alone(t, func(t *testing.T, locks *registry.JdbcLockRegistry, _ *registrytest.Around) {
		hold, err := locks.Obtain("foo").LockContext(bg(), registry.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Unlock(bg())
		wait := func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			err := hold.Verify(ctx, func(ctx context.Context, _ repository.LockRepository, _ repository.Lease) (repository.LeaseStatus, error) {
				<-ctx.Done()
				return repository.LeaseStatus{}, ctx.Err()
			})
			return time.Since(begin), err
		}
		ctx, cancel := context.WithTimeout(bg(), time.Second)
		defer cancel()
		if took, err := wait(ctx); took != time.Second || !errors.Is(err, context.DeadlineExceeded) || !hold.Held() {
			t.Errorf("after %v: %v, held %v", took, err, hold.Held())
		}
		if took, err := wait(bg()); took > 9*time.Second || !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
