// Command bench measures intlock beside others, on the databases that
// internal/testdb/serve has started, and writes docs/performance.md's table and
// plots. Run it with `make bench`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"
)

// settings are what the flags say.
type settings struct {
	rounds int
	time   time.Duration // of one case in one round
	only   string
	rows   int
	docs   string
}

func main() {
	if name := os.Getenv(childEnv); name != "" {
		child(name)
		return
	}
	var s settings
	quick := flag.Bool("quick", false, "two short rounds, to see that it works")
	flag.IntVar(&s.rounds, "rounds", 5, "how often each case is measured, in turn with the others")
	flag.DurationVar(&s.time, "time", 700*time.Millisecond, "how long each time")
	flag.StringVar(&s.only, "only", "", "`part` of the names of the scenarios to run: "+strings.Join(scenarioNames(), ", "))
	flag.IntVar(&s.rows, "rows", 1_000_000, "rows in the largest table")
	flag.StringVar(&s.docs, "docs", "", "`folder` to write the table and the plots to")
	flag.Parse()
	if *quick {
		s.rounds, s.time, s.rows = 2, 150*time.Millisecond, min(s.rows, 20_000)
	}
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenario is one thing that is measured.
type scenario struct {
	name string
	run  func(context.Context, settings, *report) error
}

var scenarios = []scenario{
	{"trips", roundTrips},
	{"cycles", cycles},
	{"try", losingTry},
	{"handover", handOver},
	{"crowd", crowd},
	{"size", tableSize},
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

func run(ctx context.Context, s settings) error {
	house, err := newHouse(ctx)
	if err != nil {
		return err
	}
	defer house.close()
	r := &report{}
	var errs []error
	for _, one := range scenarios {
		if !strings.Contains(one.name, s.only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", one.name)
		start := time.Now()
		if err := one.run(ctx, s, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", one.name, err)) // the others are not lost for it
		}
		fmt.Fprintf(os.Stderr, "%s took %v\n", one.name, time.Since(start).Round(time.Second))
	}
	fmt.Print(r.text())
	if s.docs != "" {
		errs = append(errs, r.write(s.docs))
	}
	return errors.Join(errs...)
}
