package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schedule"
)

// Extensions and keep-alive.
func TestExtend(t *testing.T) {
	each(t, func(t *testing.T, s store) {
		a, b := s.instance(t), s.instance(t)
		n := 0
		fresh := func(most time.Duration) schedule.Task {
			n++
			return schedule.Task{Name: fmt.Sprint("extended ", n), LockAtMostFor: most}
		}
		t.Run("E1 E2 E6 X11 extensions keep it past its end, again and again, and then it is given back", func(t *testing.T) {
			task := fresh(time.Second)
			during(t, a, task, func(ctx context.Context) {
				for range 3 {
					time.Sleep(500 * time.Millisecond)
					must(t, schedule.Extend(ctx, time.Second, 0))
				}
				if err := schedule.AssertLocked(ctx); err != nil || ctx.Err() != nil {
					t.Errorf("%v, %v", err, context.Cause(ctx))
				}
				skips(t, b, task)
			})
			runs(t, b, task)
		})
		t.Run("E3 E7 outside of a job, and after it, there is nothing to extend", func(t *testing.T) {
			if err := schedule.Extend(t.Context(), time.Second, 0); !errors.Is(err, schedule.ErrNotLocked) {
				t.Errorf("outside: %v", err)
			}
			var kept context.Context
			during(t, a, fresh(time.Second), func(ctx context.Context) { kept = ctx })
			if err := schedule.Extend(kept, time.Second, 0); !errors.Is(err, schedule.ErrNotLocked) {
				t.Errorf("after: %v", err)
			}
			if err := schedule.AssertLocked(kept); !errors.Is(err, schedule.ErrNotLocked) {
				t.Errorf("assert after: %v", err)
			}
		})
		t.Run("E4 E9 E10 A4 A5 after its end it cannot be extended, and the job is told", func(t *testing.T) {
			task := fresh(200 * time.Millisecond)
			result, err := a.Execute(t.Context(), task, func(ctx context.Context) error {
				begin := time.Now()
				<-ctx.Done()
				if took := time.Since(begin); took > 5*time.Second || !errors.Is(context.Cause(ctx), registry.ErrLockLost) {
					t.Errorf("told after %v: %v", took, context.Cause(ctx))
				}
				waitRuns(t, b, task)
				if err := schedule.Extend(ctx, time.Minute, 0); !errors.Is(err, registry.ErrLockLost) {
					t.Errorf("extend: %v", err)
				}
				if err := schedule.AssertLocked(ctx); !errors.Is(err, registry.ErrLockLost) {
					t.Errorf("assert: %v", err)
				}
				return nil
			})
			if !result.Executed() || !errors.Is(err, registry.ErrLockLost) {
				t.Errorf("%v, %v: want it executed, and the overrun reported", result, err)
			}
			runs(t, b, task)
		})
		t.Run("E5 E8 an extension's minimum holds, counted from the extension", func(t *testing.T) {
			task := fresh(2 * time.Second)
			var extended time.Time
			during(t, a, task, func(ctx context.Context) {
				time.Sleep(100 * time.Millisecond)
				extended = time.Now()
				must(t, schedule.Extend(ctx, 5*time.Second, 700*time.Millisecond))
			})
			began := waitRuns(t, b, task)
			if took := began.Sub(extended); took < 690*time.Millisecond {
				t.Errorf("it ran %v after the extension", took)
			}
		})
		t.Run("the task's minimum counts from the grant, also after an extension", func(t *testing.T) {
			task := fresh(2 * time.Second)
			task.LockAtLeastFor = time.Second
			var begin time.Time
			during(t, a, task, func(ctx context.Context) {
				begin = time.Now()
				time.Sleep(100 * time.Millisecond)
				must(t, schedule.Extend(ctx, 10*time.Second, 0))
			})
			began := waitRuns(t, b, task)
			if took := began.Sub(begin); took < 900*time.Millisecond || took > 8*time.Second {
				t.Errorf("it ran %v after the grant", took)
			}
		})
		t.Run("extensions that make no sense are refused", func(t *testing.T) {
			during(t, a, fresh(time.Minute), func(ctx context.Context) {
				for _, d := range [][2]time.Duration{{time.Second, 2 * time.Second}, {0, 0}, {-time.Second, 0}, {time.Second, -time.Second}} {
					if err := schedule.Extend(ctx, d[0], d[1]); !errors.Is(err, schedule.ErrTask) {
						t.Errorf("%v: %v, want ErrTask", d, err)
					}
				}
			})
		})
		t.Run("K1 K2 a keep-alive renews, again and again, and keeps the minimum", func(t *testing.T) {
			task := fresh(1200 * time.Millisecond)
			task.LockAtLeastFor, task.KeepAlive = time.Second, schedule.KeepAliveOn
			during(t, a, task, func(ctx context.Context) {
				for begin := time.Now(); time.Since(begin) < 2600*time.Millisecond; time.Sleep(100 * time.Millisecond) {
					if ctx.Err() != nil {
						t.Fatalf("lost after %v: %v", time.Since(begin), context.Cause(ctx))
					}
					skips(t, b, task)
				}
			})
			runs(t, b, task) // K4: nobody renews it any more, and the minimum has passed
		})
		t.Run("K3 a keep-alive that finds the lock gone ends the job", func(t *testing.T) {
			task := fresh(1200 * time.Millisecond)
			task.KeepAlive = schedule.KeepAliveOn
			table, column := "INT_LOCK", "LOCK_KEY"
			key := registry.PathFor(task.Name)
			if s.shedlock {
				table, column, key = "shedlock", "name", task.Name
			}
			_, err := a.Execute(t.Context(), task, func(ctx context.Context) error {
				must(t, eventually(func() error {
					_, err := s.Exec(fmt.Sprintf("DELETE FROM %s WHERE %s = '%s'", table, column, key))
					return err
				}))
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second):
					t.Error("the job is not told")
				}
				return nil
			})
			var lost *registry.LostError
			if !errors.As(err, &lost) || lost.Reason != registry.LossDeleted {
				t.Errorf("err = %v, want the loss", err)
			}
		})
	})
}
