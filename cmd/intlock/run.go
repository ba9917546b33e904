package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

var runCommand = &command{
	name:    "run",
	summary: "run a command while holding a lock",
	usage:   "run [flags] KEY [--] COMMAND [ARGUMENT ...]",
	text: `
Takes the lock KEY, runs the command, and gives the lock back: flock(1) for several
machines. While it waits for the lock it runs nothing. The lock is renewed while the
command runs. The command finds KEY in INTLOCK_KEY and its fencing token, a number
that rises with every grant, in INTLOCK_TOKEN.

Signals go on to the command and what it has started, and its exit status, or 128 + the
number of the signal that ended it, is that of intlock. The lock is given back when the
command ends: what it leaves running in the background works on without the lock.

If the lock is lost, because the database did not answer for as long as the lease
lasts, or somebody has released it, the command and what it has started get TERM, and
KILL after the grace time, also those that outlive the command. On a terminal only the
command itself gets them, as all of them share the terminal's process group.

If intlock itself is killed, the command is killed too (on Linux; what the command has
started itself is not), and the lease ends with its TTL.

Exit status, beside the command's:
   2  a wrong command line
  69  the database cannot be used; the command did not run
  75  the lock is held by another (-n, -wait)
  76  the lock was lost while the command ran
 126  the command cannot be run
 127  the command is not there

Examples:
  intlock run nightly-backup -- pg_dump -f /backup/app.dump app
  intlock run -n deploy ./deploy.sh || echo "somebody deploys already"
  intlock run -n -at-least 50s cleanup -- ./cleanup    # from cron, on every machine`,
	rest: true,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.BoolVar(&o.now, "n", false, "fail at once if the lock is held, as -wait 0")
		fs.DurationVar(&o.wait, "wait", -1, "`time` to wait for the lock, as 10s or 5m (default: as long as it takes)")
		fs.DurationVar(&o.ttl, "ttl", 30*time.Second, "`length` of the lease, which is renewed: how long the lock stays if this machine dies")
		fs.DurationVar(&o.atLeast, "at-least", 0, "`time` that the lock stays at least, also when the command has died (a shorter -ttl is raised to it)")
		fs.DurationVar(&o.grace, "grace", 5*time.Second, "`time` between TERM and KILL when the lock is lost")
		fs.IntVar(&o.heldStatus, "held-status", exitHeld, "exit `status` if the lock is held")
	},
	run: runRun,
}

func runRun(ctx context.Context, p program, o *options, args []string) error {
	if len(args) > 1 && args[1] == "--" {
		args = append(args[:1:1], args[2:]...)
	}
	switch {
	case len(args) < 2:
		return usageError("want a key and a command")
	case args[0] == "":
		return usageError("the key is empty")
	case o.ttl < time.Second:
		return usageError("-ttl %v: want at least 1s", o.ttl)
	case o.atLeast < 0 || o.grace < 0:
		return usageError("-at-least and -grace take no negative time")
	case o.atLeast > o.ttl:
		o.ttl = o.atLeast // it has to outlive a crash
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		status := exitNotFound
		if errors.Is(err, os.ErrPermission) {
			status = exitCannot
		}
		return failure{status, err}
	}

	// From here on signals are ours: while we wait they end us, then they are the
	// command's.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	repo, end, err := o.repository(ctx, repository.WithTokens())
	if err != nil {
		return err
	}
	defer end()
	quiet := slog.New(slog.DiscardHandler) // what matters is said below
	locks, err := registry.New(repo, registry.WithTTL(o.ttl), registry.WithLogger(quiet))
	if err != nil {
		return usageError("%w", err)
	}
	defer locks.Close(ctx)
	hold, err := acquire(ctx, p, o, locks, args[0], signals)
	if err != nil {
		return err
	}
	granted := time.Now()
	cmd := exec.Command(path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.in, p.out, p.err
	cmd.Env = append(os.Environ(), "INTLOCK_KEY="+args[0], fmt.Sprint("INTLOCK_TOKEN=", hold.Token()))
	group := together(cmd, p.in)
	if err := cmd.Start(); err != nil {
		hold.Unlock(ctx)
		return failure{exitCannot, err}
	}
	status, lost := attend(p, o, cmd, group, hold, signals)
	err = hold.UnlockAfter(ctx, o.atLeast-time.Since(granted))
	switch {
	case lost != nil:
		return failure{exitLost, lost}
	case errors.Is(err, registry.ErrLockLost):
		return failure{exitLost, err}
	case err != nil:
		fmt.Fprintf(p.err, "intlock run: the lock was not given back, and ends with its lease: %v\n", err)
	}
	if status != 0 {
		return exited(status)
	}
	return nil
}

// acquire waits for the lock. A signal ends the waiting.
func acquire(ctx context.Context, p program, o *options, locks *registry.JdbcLockRegistry, key string, signals <-chan os.Signal) (*registry.Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var opts []registry.LockOption
	if o.now {
		o.wait = 0
	}
	if o.wait >= 0 {
		opts = append(opts, registry.WithWait(o.wait))
	}
	type result struct {
		hold *registry.Hold
		err  error
	}
	got := make(chan result, 1)
	go func() {
		hold, err := locks.Obtain(key).LockContext(ctx, opts...)
		got <- result{hold, err}
	}()
	for {
		select {
		case s := <-signals:
			if !ends(s) {
				continue
			}
			cancel()
			if r := <-got; r.hold != nil {
				r.hold.Unlock(context.Background())
			}
			return nil, exited(128 + int(s.(syscall.Signal)))
		case r := <-got:
			switch {
			case r.err == nil:
				return r.hold, nil
			case errors.Is(r.err, registry.ErrUnavailable):
				return nil, failure{exitDatabase, r.err}
			case errors.Is(r.err, registry.ErrNotAcquired):
				fmt.Fprintf(p.err, "intlock run: %s\n", strings.TrimPrefix(r.err.Error(), "registry: "))
				return nil, exited(o.heldStatus)
			}
			return nil, databaseError(r.err)
		}
	}
}

// attend waits for the command, sends signals on to it, and ends it when the lock is
// lost.
func attend(p program, o *options, cmd *exec.Cmd, group bool, hold *registry.Hold, signals <-chan os.Signal) (status int, lost error) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	held := hold.Context(context.Background())
	losing, kill := held.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-ended:
			for lost != nil && kill != nil && left(cmd.Process, group) { // works on without the lock
				select {
				case <-kill:
					kill = nil
					send(cmd.Process, group, syscall.SIGKILL)
				case <-time.After(10 * time.Millisecond):
				}
			}
			return statusOf(cmd.ProcessState), lost
		case s := <-signals:
			send(cmd.Process, group, s.(syscall.Signal))
		case <-losing:
			losing, lost = nil, context.Cause(held)
			fmt.Fprintf(p.err, "intlock run: %v; ending the command\n", lost)
			send(cmd.Process, group, syscall.SIGTERM)
			kill = time.After(o.grace)
		case <-kill:
			kill = nil
			send(cmd.Process, group, syscall.SIGKILL)
		}
	}
}
