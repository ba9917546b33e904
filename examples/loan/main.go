// Command loan shows what a business lock is for: an impatient customer clicks
// "apply" ten times, the load balancer spreads the clicks over four processes, and
// the service, which looks whether there is a loan already before it makes one, makes
// several, as the looks come before the first loan is there. With the lock it makes
// one, and the other clicks are refused at once.
//
//	go run ./examples/loan
//	go run ./examples/loan -nolock
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `A loan service of several processes, and a load of duplicated requests: one loan for
each user and class is right.

  go run ./examples/loan              on a temporary SQLite file
  go run ./examples/loan -nolock      the damage without the lock
  go run ./examples/loan -db postgres://user:password@localhost/app
  go run ./examples/loan -db mysql://user:password@localhost/app

Flags:
`

const exitHelp = `
Exit status: 0 if each user has one loan of each class, 1 if not or if the run
failed, 2 for wrong flags or a database that cannot be used.
`

// settings are the flags.
type settings struct {
	db         string
	processes  int
	users      int
	classes    int
	duplicates int
	customers  int // at a time
	work       time.Duration
	noLock     bool
	json       bool
}

func main() {
	// The same binary is the load and the service, so there is one to build.
	if config := os.Getenv(serviceEnv); config != "" {
		os.Exit(serviceMain(config))
	}
	os.Exit(loadMain(os.Args[1:], os.Stdout, os.Stderr))
}

func parseSettings(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("loan", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.db, "db", "", "the database, `dsn` of PostgreSQL, MySQL, MariaDB or SQLite (default: a temporary SQLite file)")
	flags.IntVar(&s.processes, "processes", 4, "processes of the service")
	flags.IntVar(&s.users, "users", 100, "users")
	flags.IntVar(&s.classes, "classes", 10, "classes of loans that each user wants")
	flags.IntVar(&s.duplicates, "duplicates", 10, "times that each request is sent, all at once")
	flags.IntVar(&s.customers, "customers", 8, "requests, with their duplicates, that are under way at a time")
	flags.DurationVar(&s.work, "work", 5*time.Millisecond, "time that the service takes to decide")
	flags.BoolVar(&s.noLock, "nolock", false, "take no locks, and see what they are for")
	flags.BoolVar(&s.json, "json", false, "print the result as JSON")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		fmt.Fprint(out, exitHelp)
		return s, err
	case err != nil:
		return s, fmt.Errorf("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	case min(s.processes, s.users, s.classes, s.duplicates, s.customers) < 1 || s.work < 0:
		return s, errors.New("every number has to be 1 at least")
	}
	return s, nil
}

// loadMain is the program as its user sees it, and returns the exit status.
func loadMain(args []string, out, errs io.Writer) int {
	s, err := parseSettings(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errs, "loan: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := openBank(ctx, s)
	if err != nil {
		fmt.Fprintf(errs, "loan: %v\n", err)
		return 2
	}
	defer b.close()
	result, err := b.run(ctx)
	if err != nil {
		fmt.Fprintf(errs, "loan: %v\n", err)
		return 1
	}
	if s.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.Encode(result)
	} else {
		result.print(out)
	}
	if !result.Right {
		return 1
	}
	return 0
}
