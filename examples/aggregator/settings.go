package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// settings are the flags.
type settings struct {
	db       string
	workers  int
	parallel int
	groups   int
	messages int
	seed     uint64
	ttl      time.Duration
	work     time.Duration
	noLock   bool
	mishap   mishap
	keep     bool
	json     bool
}

var errHelp = flag.ErrHelp

const usage = `Aggregators that share their groups: worker processes on one database, a lock
per group, and a verdict whether every group was released exactly once.

  go run ./examples/aggregator                     on a temporary SQLite file
  go run ./examples/aggregator -nolock             the damage without the lock
  go run ./examples/aggregator -kill               a worker dies in the middle of a group
  go run ./examples/aggregator -stop               a worker goes on after its lease has ended
  go run ./examples/aggregator -db postgres://user:password@localhost/app
  go run ./examples/aggregator -db 'user:password@tcp(localhost:3306)/app'

Flags:
`

const exitHelp = `
Exit status: 0 if every group was released exactly once, 1 if not or if the run
failed, 2 for wrong flags or a database that cannot be used, 130 after Ctrl-C.
`

func parseSettings(args []string, out io.Writer) (settings, error) {
	var s settings
	var kill, stop bool
	flags := flag.NewFlagSet("aggregator", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.db, "db", "", "the database, `dsn` of PostgreSQL, MySQL, MariaDB or SQLite (default: a temporary SQLite file)")
	flags.IntVar(&s.workers, "workers", 4, "worker processes")
	flags.IntVar(&s.parallel, "parallel", 4, "messages that one worker handles at once")
	flags.IntVar(&s.groups, "groups", 500, "groups")
	flags.IntVar(&s.messages, "messages", 5000, "messages of all groups together, not counting duplicates and late ones")
	flags.Uint64Var(&s.seed, "seed", 0, "`number` that decides the order of the messages (default: random; it is printed)")
	flags.DurationVar(&s.ttl, "ttl", 2*time.Second, "length of a lease: what a killed or stopped worker makes the others wait; renewed while the work lasts")
	flags.DurationVar(&s.work, "work", 10*time.Millisecond, "time a worker takes between reading a group and writing it")
	flags.BoolVar(&s.noLock, "nolock", false, "take no locks, and see what they are for")
	flags.BoolVar(&kill, "kill", false, "kill a worker in the middle of a group (SIGKILL)")
	flags.BoolVar(&stop, "stop", false, "stop a worker in the middle of a group (SIGSTOP), and continue it when another has taken the group over")
	flags.BoolVar(&s.keep, "keep", false, "keep the tables of this run, and the temporary file")
	flags.BoolVar(&s.json, "json", false, "print the result as JSON; what people read goes to standard error")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, usage)
			flags.SetOutput(out)
			flags.PrintDefaults()
			fmt.Fprint(out, exitHelp)
			return s, errHelp
		}
		return s, fmt.Errorf("%w; -h lists the flags", err)
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	case s.workers < 1 || s.parallel < 1 || s.groups < 1:
		return s, errors.New("-workers, -parallel and -groups want at least 1")
	case s.messages < s.groups:
		return s, errors.New("-messages wants at least one message per group")
	case s.ttl < 200*time.Millisecond:
		return s, errors.New("-ttl wants at least 200ms, many times what a busy database takes to answer")
	case s.work < 0:
		return s, errors.New("-work wants no negative time")
	case (kill || stop) && s.noLock:
		return s, errors.New("-kill and -stop show how a lock is taken over, so they cannot go with -nolock")
	case kill && stop:
		return s, errors.New("-kill and -stop are two stories: one in a run")
	case stop && s.workers < 2:
		return s, errors.New("-stop wants at least 2 -workers: another one takes over")
	case stop && !canStop:
		return s, errors.New("-stop wants signals that this system does not have")
	case kill:
		s.mishap = killed
	case stop:
		s.mishap = stopped
	}
	if s.seed == 0 {
		var b [4]byte
		rand.Read(b[:]) // never fails, by its documentation
		s.seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return s, nil
}
