package main

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/registry"
)

// aggregator puts the messages of groups together. There is one in each
// worker, and all of them work on all groups.
type aggregator struct {
	locks  *registry.JdbcLockRegistry
	noLock bool
	store  *store
	worker int
	work   time.Duration                         // what deciding about a group takes
	stall  func(ctx context.Context, d delivery) // where -kill and -stop strike
}

// handle adds a message to its group while holding the group's lock. inside is
// called when the wait for the lock is over.
//
// On an error nobody knows whether the message took effect: it may be handled
// again, by whomever, any number of times.
func (a *aggregator) handle(ctx context.Context, d delivery, inside func()) (out outcome, handed bool, err error) {
	add := func(ctx context.Context) (err error) {
		inside()
		out, handed, err = a.add(ctx, d)
		return err
	}
	if a.noLock {
		err = add(ctx)
		return out, handed, err
	}
	err = a.locks.ExecuteLocked(ctx, d.Group, add)
	return out, handed, err
}

// add adds a message to its group, and releases the group if that completes
// it. It reads, thinks, and writes: correct only if nobody else does the same
// to this group meanwhile.
//
// Two things keep it from writing when the lock is lost. ctx ends then, and
// every step that takes time runs under it. That alone does not help a process
// that is paused for longer than its lease just before the commit, so the
// transaction itself asserts the lock.
func (a *aggregator) add(ctx context.Context, d delivery) (out outcome, handed bool, err error) {
	g, err := a.store.load(ctx, d.Group)
	if err != nil {
		return "", false, err
	}
	if g.complete {
		return late, false, nil
	}
	if _, ok := g.amounts[d.Seq]; ok {
		return duplicate, false, nil
	}
	select {
	case <-time.After(a.work):
	case <-ctx.Done():
		return "", false, context.Cause(ctx)
	}
	handed = g.exists && g.lastWorker != a.worker
	g.put(d)
	out = added
	if g.complete {
		out = released
	}
	mayStall := func(where mishap) {
		if g.complete && d.Stall == where {
			a.stall(ctx, d)
		}
	}
	mayStall(stopped)
	err = a.store.save(ctx, g, d, a.worker, func(tx *sqlx.Tx) error {
		mayStall(killed)
		if a.noLock {
			return nil
		}
		// Last, because it locks the lock's row: until the commit nobody can
		// take the lock over, nor can it be renewed.
		hold, _ := registry.HoldFromContext(ctx)
		return fencing.AssertHeld(ctx, tx, hold)
	})
	return out, handed, err
}
