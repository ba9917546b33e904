package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schedule"
)

// What ShedLock's own integration tests promise of a lock, by the names that
// docs/shedlock.md gives them.
func TestLocks(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		a, b := s.instance(t), s.instance(t)
		n := 0
		fresh := func() schedule.Task { n++; return schedule.Task{Name: fmt.Sprint("task ", n)} }

		t.Run("C1 locked while it runs, free after", func(t *testing.T) {
			task := fresh()
			during(t, a, task, func(context.Context) { skips(t, b, task) })
			runs(t, b, task)
		})
		t.Run("C2 a second one is skipped, without an error, and told by whom", func(t *testing.T) {
			task := fresh()
			during(t, a, task, func(context.Context) {
				result := skips(t, b, task)
				if s.Vendor == vendor.MySQL && !s.shedlock { // it does not tell with a refusal
					return
				}
				if left := time.Until(result.Until); result.Holder == "" || result.ClientID == "" || left < 50*time.Second || left > time.Minute+10*time.Millisecond {
					t.Errorf("%+v", result)
				}
			})
		})
		t.Run("C3 two names are independent", func(t *testing.T) {
			during(t, a, fresh(), func(context.Context) { runs(t, b, fresh()) })
		})
		t.Run("C4 C6 ten times, with nothing in between", func(t *testing.T) {
			task := fresh()
			task.LockAtMostFor = 5 * time.Minute
			for range 10 {
				during(t, a, task, func(context.Context) { skips(t, b, task) })
			}
		})
		t.Run("C5 J1 a lease that nobody gave back can be had when it has ended", func(t *testing.T) {
			task := fresh()
			task.LockAtMostFor = 300 * time.Millisecond
			left := s.locks(t)
			begin := time.Now()
			_, err := left.Obtain(task.Name).TryLockContext(t.Context(), registry.WithTTL(task.LockAtMostFor))
			must(t, err)
			if began := waitRuns(t, b, task); began.Sub(begin) < 290*time.Millisecond {
				t.Errorf("it ran after %v", began.Sub(begin))
			}
		})
		t.Run("C8 the minimum holds when the job has ended", func(t *testing.T) {
			task := fresh()
			task.LockAtMostFor, task.LockAtLeastFor = 4*time.Second, 600*time.Millisecond
			var begin time.Time
			during(t, a, task, func(context.Context) { begin = time.Now() })
			if time.Since(begin) < 500*time.Millisecond {
				skips(t, a, task)
				skips(t, b, task)
			}
			began := waitRuns(t, b, task)
			if took := began.Sub(begin); took < 550*time.Millisecond || took > 3500*time.Millisecond {
				t.Errorf("it ran again after %v", took)
			}
		})
		t.Run("the minimum holds when the job took longer than it", func(t *testing.T) {
			task := fresh()
			task.LockAtLeastFor = 50 * time.Millisecond
			during(t, a, task, func(context.Context) { time.Sleep(70 * time.Millisecond) })
			runs(t, b, task)
		})
		t.Run("J3 a name that is too long is an error", func(t *testing.T) {
			_, err := a.Job(schedule.Task{Name: strings.Repeat("x", 65)}, nothing)
			if s.shedlock != errors.Is(err, schedule.ErrTask) {
				t.Errorf("err = %v", err)
			}
		})
		t.Run("J4 J5 a refusal and other names leave a row as it is", func(t *testing.T) {
			task, other := fresh(), fresh()
			locks := s.locks(t)
			during(t, a, task, func(context.Context) {
				before, held, err := locks.Info(t.Context(), task.Name)
				if err != nil || !held {
					t.Fatal(held, err)
				}
				skips(t, b, task)
				runs(t, b, other)
				after, held, err := locks.Info(t.Context(), task.Name)
				if err != nil || !held || after.ClientID != before.ClientID || after.Remaining > before.Remaining {
					t.Errorf("%+v, before it was %+v, %v", after, before, err)
				}
			})
		})
		t.Run("T3 a million names leave nothing in the process", func(t *testing.T) {
			// The registry's cache is bounded; here it is enough that a task's name
			// leaves nothing in the executor.
			for range 100 {
				runs(t, a, fresh())
			}
			if got := a.Active(); len(got) != 0 {
				t.Errorf("%d are active", len(got))
			}
		})
	})
}

// A process that dies keeps the lock until LockAtMostFor has passed, not longer: R4.
func TestDies(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		t.Parallel()
		const most = 1500 * time.Millisecond
		task := schedule.Task{Name: "dies", LockAtMostFor: most}
		e := s.instance(t)
		child := s.spawn(t, "die", most.String())
		child.Line(t, 20*time.Second)
		seen := time.Now()
		skips(t, e, task)
		child.Wait(t, 10*time.Second)
		began := waitRuns(t, e, task)
		if took := began.Sub(seen); took < most/2 || took > most+5*time.Second {
			t.Errorf("it ran %v after the grant", took)
		}
	})
}
