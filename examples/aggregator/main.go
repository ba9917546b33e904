// Command aggregator shows what a lock registry is for: several processes put
// the messages of groups together, in one database, and no two of them may
// work on one group at once.
//
//	go run ./examples/aggregator
//
// It starts worker processes, deals them messages in random order, some of
// them twice and some too late, and checks in the end that every group was
// released exactly once. README.md tells how to read what it prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// The same binary is coordinator and worker, so there is one to build.
	if config := os.Getenv(workerEnv); config != "" {
		os.Exit(workerMain(config))
	}
	os.Exit(coordinatorMain(os.Args[1:]))
}

// Exit statuses: 0 ok, 1 damage or failure, 2 usage or no database, 130
// interrupted.
func coordinatorMain(args []string) int {
	s, err := parseSettings(args, os.Stderr)
	if err != nil {
		if errors.Is(err, errHelp) {
			return 0
		}
		fmt.Fprintf(os.Stderr, "aggregator: %v\n", err)
		return 2
	}
	// A second Ctrl-C ends us at once; the workers notice and give back their
	// locks, but the tables stay.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	signal.Ignore(syscall.SIGPIPE) // who pipes us into head still wants the tables removed

	people := newScreen(os.Stdout)
	if s.json {
		people = newScreen(os.Stderr)
	}
	b, err := openBench(ctx, s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "aggregator: %v\n", err)
		return 2
	}
	result, err := aggregate(ctx, s, b, people)
	if err := errors.Join(err, b.clear(people)); err != nil {
		fmt.Fprintf(os.Stderr, "aggregator: %v\n", err)
		return 1
	}
	if s.json {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(result); err != nil {
			return 1
		}
	}
	return result.Verdict.exitStatus()
}

// aggregate is one run, from the first message to the verdict.
func aggregate(ctx context.Context, s settings, b *bench, to *screen) (*summary, error) {
	f := newFeed(s.groups, s.messages, s.seed, s.mishap)
	config := workerConfig{
		Run: b.run, DSN: b.dsn, TTL: s.ttl, Work: s.work, Parallel: s.parallel, NoLock: s.noLock,
	}
	c := newCoordinator(config, f, to, b.locks)
	var err error
	for range s.workers {
		err = errors.Join(err, c.start())
	}
	to.note("%s", to.bold("intlock: aggregators that share their groups"))
	to.note("  database  %s", b)
	to.note("  feed      %d messages of %d groups, some twice, some late, in random order (-seed %d)", s.messages, s.groups, s.seed)
	to.note("  workers   %d processes of %d goroutines: pid %s", s.workers, s.parallel, c.pids())
	if s.noLock {
		to.note("  lock      %s", to.red("none: expect damage"))
	} else {
		to.note("  lock      one per group, leases of %v", s.ttl)
	}
	to.note("")
	if err == nil {
		err = c.run(ctx)
	} else {
		c.finish()
	}
	seconds := time.Since(c.begun).Seconds()
	wasInterrupted := ctx.Err() != nil

	// From here on Ctrl-C must not cut short what tells how it went.
	ctx = context.WithoutCancel(ctx)
	sum := &summary{
		Database: b.locks.Vendor(), Locked: !s.noLock, Seed: s.seed, Groups: s.groups, Messages: s.messages,
		GivenBack: c.failures.all, LocksLost: c.failures.lost,
		Seconds: seconds, Takeover: c.takeover, Workers: c.tallies, Total: total(c.tallies),
	}
	sum.PerSecond = float64(sum.Total.Messages) / seconds
	outputs, readErr := b.store.outputs(ctx)
	left, leftErr := b.locksLeft(ctx, s.ttl)
	if err := errors.Join(readErr, leftErr); err != nil {
		return nil, err
	}
	sum.Audit, sum.LocksLeft = newAudit(f, outputs), left
	sum.judge(err, wasInterrupted, s.mishap, c.failures.unclean)
	sum.print(to)
	return sum, nil
}
