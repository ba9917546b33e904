package main

import (
	"context"
	"time"
)

// stall waits for the mishap of this run, at the worst moment for it. ctx is
// the worker's, held ends with the lock.
func (w *worker) stall(ctx, held context.Context, d delivery) {
	switch d.Stall {
	case killed:
		w.waitForKill(held, d)
	case stopped:
		w.waitForStop(ctx, d)
	}
}

// waitForKill waits when the result is written, but not committed.
func (w *worker) waitForKill(held context.Context, d delivery) {
	w.report(report{Kind: isInside, ID: d.ID})
	select {
	case <-time.After(w.TTL / 2): // nobody came
	case <-held.Done():
	}
}

// waitForStop waits when all is decided, but the transaction has not begun. It
// returns when the process was stopped and goes on.
//
// Not in the transaction: a database ends that of a killed process, but keeps
// the one of a stopped process open. On SQLite nobody else could write a
// single message until it goes on, on a server nobody could take over this
// group. (That is safe. It just is no test of anything.) Nor may the other
// goroutines of this process be in one, which is why all connections are taken
// first.
func (w *worker) waitForStop(ctx context.Context, d delivery) {
	db := w.aggregator.store.db
	for range db.Stats().MaxOpenConnections {
		conn, err := db.Conn(ctx)
		if err != nil {
			return // the end of the run
		}
		defer conn.Close()
	}
	continued, stop := whenContinued()
	defer stop()
	w.report(report{Kind: isInside, ID: d.ID})
	select {
	case <-continued: // and not the lock's end: who is stopped sees nothing coming
	case <-ctx.Done():
	}
}
