//go:build unix

package main

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
)

func TestAKilledWorkersGroupIsFinishedByAnother(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		s := runJSON(t, db, 0, append(small, "-kill", "-ttl", "1s")...)
		if s.Verdict != ok || !reflect.DeepEqual(s.Audit, audit{Released: 40}) {
			t.Errorf("got %+v", s)
		}
		story := s.Takeover
		if !story.isComplete() || story.Mishap != killed || story.FinishedBy == story.Worker {
			t.Fatalf("take-over: got %+v", story)
		}
		left, after := story.LeaseLeft, story.After
		if left <= 0 || left > 1000 {
			t.Errorf("left of the lease: got %v, want up to 1s", left)
		}
		// The coordinator's clock starts a little after the table was read.
		if after < left-100 || after > left+5000 {
			t.Errorf("finished after %v, with %v left of the lease", after, left)
		}
	})
}

func TestAStoppedWorkerDoesNoDamage(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		s := runJSON(t, db, 0, append(small, "-stop", "-ttl", "2s")...)
		if s.Verdict != ok || !reflect.DeepEqual(s.Audit, audit{Released: 40}) {
			t.Errorf("got %+v", s)
		}
		story := s.Takeover
		if !story.isComplete() || story.Mishap != stopped || story.FinishedBy == story.Worker {
			t.Fatalf("take-over: got %+v", story)
		}
		if story.ContinuedAfter < 2000 || story.ContinuedAfter < story.After {
			t.Errorf("continued after %v, want more than the lease of 2s and than %v", story.ContinuedAfter, story.After)
		}
		if s.LocksLost == 0 || s.GivenBack < s.LocksLost {
			t.Errorf("locks lost %d, given back %d: want at least the stopped worker's", s.LocksLost, s.GivenBack)
		}
		for _, w := range s.Workers {
			if (w.Mishap == stopped) != (w.Worker == story.Worker) || w.Mishap == killed {
				t.Errorf("worker %d: %s; the story is of worker %d", w.Worker, w.Mishap, story.Worker)
			}
		}
	})
}

// TestAWriteWithoutTheLockIsRefused: also if the process does not know that it
// has lost the lock, and the code would not care.
func TestAWriteWithoutTheLockIsRefused(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		b, err := openBench(t.Context(), settings{db: db.DSN})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.close)
		newAggregator := func(worker int) *aggregator {
			locks, err := registry.New(b.locks, registry.WithOnLost(func(*registry.LostError) {}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close(context.Background()) })
			return &aggregator{locks: locks, store: b.store, worker: worker}
		}
		first, second := newAggregator(1), newAggregator(2)
		last := delivery{Group: groupName(0), Seq: 1, Size: 1, Amount: 7}
		first.stall = func(ctx context.Context, _ delivery) {
			if _, err := db.Exec("DELETE FROM INT_LOCK"); err != nil {
				t.Fatal(err)
			}
			if out, _, err := second.handle(ctx, last, func() {}); out != released || err != nil {
				t.Fatalf("the second worker: %s, %v; want it released", out, err)
			}
		}
		stalling := last
		stalling.Stall = stopped
		err = first.locks.ExecuteLocked(t.Context(), last.Group, func(ctx context.Context) error {
			_, _, err := first.add(context.WithoutCancel(ctx), stalling)
			return err
		})
		if !errors.Is(err, registry.ErrLockLost) {
			t.Errorf("the first worker: %v, want ErrLockLost", err)
		}
		outputs, err := b.store.outputs(t.Context())
		if err != nil || len(outputs) != 1 || outputs[0].Worker != 2 {
			t.Errorf("outbox: %+v, %v; want the result of worker 2 alone", outputs, err)
		}
	})
}

// TestWorkMayTakeLongerThanALease: without renewal every message would fail.
func TestWorkMayTakeLongerThanALease(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		s := runJSON(t, db, 0, "-groups", "3", "-messages", "3", "-ttl", "2s", "-work", "3s")
		if s.Verdict != ok || !reflect.DeepEqual(s.Audit, audit{Released: 3}) {
			t.Errorf("got %+v", s)
		}
	})
}
