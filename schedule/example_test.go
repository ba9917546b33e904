package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schedule"
)

// Two instances have the job; the one that is first runs it.
func Example() {
	ctx := context.Background()
	var table repository.MemoryTable // a database in a program
	instance := func(holder string) *schedule.Executor {
		repo, _ := repository.NewMemory(&table, repository.WithHolder(holder))
		locks, _ := registry.New(repo)
		jobs, err := schedule.New(locks, schedule.WithLockAtMostFor(10*time.Minute))
		if err != nil {
			panic(err)
		}
		return jobs
	}
	one, two := instance("one"), instance("two")
	task := schedule.Task{Name: "daily report"}

	result, err := one.Execute(ctx, task, func(ctx context.Context) error {
		fmt.Println("one sends the report")
		result, err := two.Execute(ctx, task, func(context.Context) error {
			fmt.Println("two sends it again")
			return nil
		})
		fmt.Println("two:", result.Outcome, "by", result.Holder, err)
		return nil
	})
	fmt.Println("one:", result.Outcome, err)
	// Output:
	// one sends the report
	// two: skipped: locked by one <nil>
	// one: executed <nil>
}

// A job runs once for each instant at which it is due.
func ExampleAt() {
	repo, _ := repository.NewMemory(nil)
	locks, _ := registry.New(repo)
	jobs, _ := schedule.New(locks, schedule.WithLockAtMostFor(time.Minute))
	report, err := jobs.Job(schedule.Task{Name: "report"}, func(context.Context) error {
		fmt.Println("sent")
		return nil
	})
	if err != nil {
		panic(err)
	}
	due := time.Date(2030, 1, 1, 6, 0, 0, 0, time.UTC)
	for range 2 {
		result, err := report.Run(context.Background(), schedule.At(due))
		fmt.Println(result.Outcome, err)
	}
	// Output:
	// sent
	// executed <nil>
	// skipped: already done <nil>
}
