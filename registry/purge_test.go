package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// stepwise is a store whose DeleteExpired looks at one row at a time, for 10 ms.
type stepwise struct {
	*repository.MemoryLockRepository
	steps  int
	during func(step int) error
}

func (s *stepwise) DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error) {
	s.steps++
	time.Sleep(10 * time.Millisecond)
	if s.during != nil {
		if err := s.during(s.steps); err != nil {
			return 0, "", err
		}
	}
	rows, err := s.List(ctx)
	for i, row := range rows {
		if err != nil || row.Key <= after {
			continue
		}
		if row.Remaining < 0 {
			deleted = 1
			if _, err := s.Delete(ctx, repository.Lease{Key: row.Key, Attempt: 1}); err != nil {
				return 0, "", err
			}
		}
		if i < len(rows)-1 {
			next = row.Key
		}
		break
	}
	return deleted, next, err
}

// purgeStepwise calls DeleteExpired where ten keys have expired and two, first and
// last, have not, in virtual time.
func purgeStepwise(t *testing.T, during func(cancel func(), locks *registry.JdbcLockRegistry) func(step int) error) (deleted int64, steps int, took time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		memory, _ := repository.NewMemory(nil)
		for key, ttl := range map[string]time.Duration{"0": time.Hour, "l": time.Hour, "a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1} {
			if ttl == 1 {
				ttl = time.Millisecond
			}
			if out, err := memory.Acquire(t.Context(), repository.Request{Key: key, Attempt: 1, TTL: ttl}); !out.Acquired {
				t.Fatalf("%s: %v", key, err)
			}
		}
		time.Sleep(time.Second)
		store := &stepwise{MemoryLockRepository: memory}
		locks, err2 := registry.New(store)
		if err2 != nil {
			t.Fatal(err2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if during != nil {
			store.during = during(cancel, locks)
		}
		start := time.Now()
		deleted, err = locks.DeleteExpired(ctx)
		steps, took = store.steps, time.Since(start)
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return deleted, steps, took, err
}

// TestDeleteExpiredSteps: the registry goes through all steps, and leaves as much
// time to others as it takes.
func TestDeleteExpiredSteps(t *testing.T) {
	deleted, steps, took, err := purgeStepwise(t, nil)
	if deleted != 10 || steps != 12 || err != nil {
		t.Errorf("%d rows in %d steps, %v; want 10 in 12", deleted, steps, err)
	}
	if want := (2*12 - 1) * 10 * time.Millisecond; took != want {
		t.Errorf("it took %v, want %v: a step, a pause, a step", took, want)
	}

	// A step that fails is taken again, and what was deleted counts once.
	deleted, steps, _, err = purgeStepwise(t, func(func(), *registry.JdbcLockRegistry) func(int) error {
		return func(step int) error {
			if step == 4 || step == 5 {
				return repository.ErrTransient
			}
			return nil
		}
	})
	if deleted != 10 || steps != 14 || err != nil {
		t.Errorf("%d rows in %d steps, %v; want 10 in 14", deleted, steps, err)
	}
}

// TestDeleteExpiredStops: a caller who leaves, and Close, stop it between two steps
// as within one, and it says how far it got.
func TestDeleteExpiredStops(t *testing.T) {
	broken := errors.New("permission denied")
	for name, c := range map[string]struct {
		want   error
		during func(cancel func(), locks *registry.JdbcLockRegistry) func(int) error
	}{
		"the context ends": {context.Canceled, func(cancel func(), _ *registry.JdbcLockRegistry) func(int) error {
			return func(step int) error {
				if step == 4 {
					time.AfterFunc(5*time.Millisecond, cancel) // in the pause behind it
				}
				return nil
			}
		}},
		"the registry is closed": {registry.ErrClosed, func(_ func(), locks *registry.JdbcLockRegistry) func(int) error {
			return func(step int) error {
				if step == 4 {
					time.AfterFunc(5*time.Millisecond, func() { _ = locks.Close(context.Background()) })
				}
				return nil
			}
		}},
		"an error that stays": {broken, func(func(), *registry.JdbcLockRegistry) func(int) error {
			return func(step int) error {
				if step == 5 {
					return broken
				}
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			deleted, steps, _, err := purgeStepwise(t, c.during)
			if deleted != 3 || steps > 5 || !errors.Is(err, c.want) {
				t.Errorf("%d rows in %d steps, %v; want 3, and %v", deleted, steps, err, c.want)
			}
		})
	}
}
