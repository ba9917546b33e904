package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// cycles has goroutines of one process lock and unlock, each a key of its own.
func cycles(ctx context.Context, s settings, r *report) error {
	for _, vendor := range []string{"postgres", "mariadb", "mysql", "sqlite"} {
		all := kinds(vendor)
		group := pick(all, theProbe, durable, async, woken, single, "Spring's algorithm", "Spring's algorithm, prepared", "pglock 1.16", "advisory lock", "GET_LOCK")
		if len(group) == 0 {
			continue
		}
		if vendor == "postgres" {
			group = append(group, here(redisKinds())...)
		}
		counts := []int{1, 4, 16, 64, 256}
		if vendor != "postgres" {
			counts = []int{1, 16, 64}
		}
		for _, goroutines := range counts {
			some := slices.DeleteFunc(slices.Clone(group), func(k kind) bool {
				// A connection for each goroutine, or minutes for what is known.
				return goroutines > 64 && (k.name == "advisory lock" || k.name == "GET_LOCK" || k.name == "pglock 1.16" || k.name[0] == 'S')
			})
			if err := measureCycles(ctx, s, r, vendor, some, goroutines); err != nil {
				return err
			}
		}
	}
	return nil
}

func measureCycles(ctx context.Context, s settings, r *report, vendor string, group []kind, goroutines int) error {
	results := make([]series, len(group))
	for range s.rounds {
		for i, k := range group {
			one, err := measureOne(ctx, k, goroutines, s.time)
			if err != nil { // of a peer, perhaps: the others go on without this round
				fmt.Fprintf(os.Stderr, "%s, %d goroutines: %v\n", k.id(), goroutines, err)
				continue
			}
			results[i].add(one)
		}
	}
	for i, k := range group {
		if len(results[i].rounds) == 0 {
			return fmt.Errorf("%s, %d goroutines: every round failed", k.id(), goroutines)
		}
		r.add(entry{Scenario: "own keys", Vendor: vendor, Kind: k.name, Goroutines: goroutines, series: results[i]})
	}
	return nil
}

// measureOne opens a kind, lets it warm up, and measures it: two at the same time
// would share the server's connections.
func measureOne(ctx context.Context, k kind, goroutines int, length time.Duration) (round, error) {
	ctx, cancel := context.WithTimeout(ctx, length+30*time.Second)
	defer cancel()
	l, err := k.open(ctx)
	if err != nil {
		return round{}, err
	}
	defer closeAll(context.WithoutCancel(ctx), l)
	if _, err := oneRound(ctx, l, goroutines, length/3); err != nil {
		return round{}, err
	}
	return oneRound(ctx, l, goroutines, length)
}

func oneRound(ctx context.Context, l locker, goroutines int, length time.Duration) (round, error) {
	var mu sync.Mutex
	var took []time.Duration
	var errs []error
	var all sync.WaitGroup
	begin := time.Now()
	end := begin.Add(length)
	for i := range goroutines {
		key := fmt.Sprintf("own-%d", i)
		all.Go(func() {
			var mine []time.Duration
			for now := time.Now(); now.Before(end); {
				unlock, err := l.lock(ctx, key)
				if err == nil {
					err = unlock()
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
				then := time.Now()
				mine = append(mine, then.Sub(now))
				now = then
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return round{}, errors.Join(errs[:1]...)
	}
	return newRound(took, time.Since(begin)), nil
}
