package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/intlock/intlock/registry"
)

var releaseCommand = &command{
	name:    "release",
	summary: "take a lock away from whoever holds it",
	usage:   "release [flags] KEY -reason TEXT",
	text: `
An operator's last resort, for a lock whose holder hangs. The holder is told with its
next renewal, or when it wants to give the lock back, that it has lost the lock; a
program that does not look works on, so end it first if you can. Its fencing token is
out of date as soon as somebody else gets the lock.

The row stays in the table, ended, with your name and the reason as its holder, until
the next grant or until it is pruned: see ls -a.`,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.StringVar(&o.reason, "reason", "", "why, in a few `words` (needed)")
		fs.BoolVar(&o.yes, "y", false, "do not ask")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		key, err := oneKey(args)
		if err != nil {
			return err
		}
		if strings.TrimSpace(o.reason) == "" {
			return usageError("say why, with -reason: whoever loses the lock will ask")
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		info, found, err := repo.Get(ctx, registry.PathFor(key))
		if err != nil {
			return databaseError(err)
		}
		if !found || !info.Held() {
			return failure{exitFailed, fmt.Errorf("%s is free", key)}
		}
		l := newLock(o.region, info)
		if !o.yes && !confirm(p, fmt.Sprintf("Take %s away from %s?", l.name(), l.holder())) {
			return failure{exitFailed, errors.New("nothing was done")}
		}
		note := fmt.Sprintf("released by %s: %s", holder(), o.reason)
		if len(note) > 200 {
			note = strings.ToValidUTF8(note[:200], "")
		}
		released, err := repo.ForceRelease(ctx, info, note)
		switch {
		case err != nil:
			return databaseError(err)
		case !released:
			return failure{exitFailed, fmt.Errorf("%s has no longer the lease that was seen: nothing was done, look again", key)}
		}
		fmt.Fprintf(p.out, "%s was held by %s, and is free\n", key, l.holder())
		return nil
	},
}

// confirm asks on a terminal. Without one there is nobody to say yes.
func confirm(p program, question string) bool {
	if !isTerminal(p.in) {
		fmt.Fprintf(p.err, "%s Not without -y: there is no terminal to ask on.\n", question)
		return false
	}
	fmt.Fprintf(p.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(p.in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

var renewCommand = &command{
	name:    "renew",
	summary: "keep a lock held for longer",
	usage:   "renew [flags] KEY -ttl TIME",
	text: `
Has the lease of the lock last at least TTL from now, whoever holds it, so that nobody
else gets the lock meanwhile: to look into something at leisure. The holder is not
told, and relies on the lock no longer than it did. A lease is never made shorter.

Exit status: 1 if the lock is free.`,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.DurationVar(&o.ttl, "ttl", 0, "`time` from now, as 10m (needed)")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		key, err := oneKey(args)
		if err != nil {
			return err
		}
		if o.ttl <= 0 {
			return usageError("-ttl says for how long")
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		held, err := repo.ForceRenew(ctx, registry.PathFor(key), o.ttl)
		switch {
		case err != nil:
			return databaseError(err)
		case !held:
			return failure{exitFailed, fmt.Errorf("%s is free", key)}
		}
		fmt.Fprintf(p.out, "%s is held for another %s at least\n", key, short(o.ttl))
		return nil
	},
}

var pruneCommand = &command{
	name:    "prune",
	summary: "delete the rows of leases that have ended",
	usage:   "prune [flags]",
	text: `
Deletes the rows of the region whose leases have ended: those of processes that died
without giving their locks back. Nothing depends on it, it keeps the table small. It
goes in small steps, and nobody who wants a lock waits for it.`,
	flags: lockFlags,
	run: func(ctx context.Context, p program, o *options, args []string) error {
		if len(args) > 0 {
			return usageError("unexpected argument %q", args[0])
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		locks, err := registry.New(repo, registry.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		defer locks.Close(ctx)
		n, err := locks.DeleteExpired(ctx)
		fmt.Fprintf(p.out, "%d deleted\n", n)
		return databaseError(err)
	},
}

var watchCommand = &command{
	name:    "watch",
	summary: "a live screen of who holds what",
	usage:   "watch [flags]",
	text: `
Shows the locks that are held, and what happens to them: who gets one, gives it back,
takes it over, or lets it expire. On a terminal it is a screen that ends with q or
Ctrl-C; elsewhere a line for each event. What happens between two looks is not seen.`,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.DurationVar(&o.interval, "interval", time.Second, "`time` between two looks")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		switch {
		case len(args) > 0:
			return usageError("unexpected argument %q", args[0])
		case o.interval < 50*time.Millisecond:
			return usageError("-interval %v: want at least 50ms", o.interval)
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		return watch(ctx, p, o, repo)
	},
}
