// Package pglisten wakes those who wait for a lock on PostgreSQL, by LISTEN and
// NOTIFY: a released lock is had by another process within about a millisecond
// instead of at its next poll.
//
//	repo, err := repository.New(ctx, db, repository.WithNotify(), repository.WithAsyncRelease())
//	wake, err := pglisten.New(dsn)
//	locks, err := registry.New(repo, registry.WithWakeUp(wake))
//
// It needs a connection of its own that stays open, and so the DSN of the
// server itself: behind a pooler that gives each transaction another connection
// (pgbouncer in transaction mode) LISTEN reports no error and delivers nothing.
// The locks themselves may go through the pooler.
//
// A release sends a notification only if somebody waits for its key, or for one
// of the few that share its bucket: who waits says so by a shared advisory lock
// on the same connection. So a program whose locks are not contended for pays
// nothing, although a notification is dear: transactions that send one are
// committed one after the other, in the whole server.
//
// It is the LISTEN support that a registry's WakeUp stands for; the design is in
// docs/adr/0011-wake-up.md.
package pglisten
