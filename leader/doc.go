// Package leader elects one of several processes for a role. It is what Spring
// Integration's LockRegistryLeaderInitiator does, on the locks of package registry.
//
//	elector, err := leader.New(locks, "importer", leader.Candidate{
//		OnGranted: func(ctx context.Context) { importUntil(ctx) },
//		OnRevoked: func() { log.Print("somebody else imports now") },
//	})
//	err = elector.Run(ctx) // until ctx ends
//
// The leader holds the lock of the role, whose lease is renewed beside whatever the
// callbacks do. While it waits, a candidate looks at the lock as any other waiter
// does: once per poll with one cheap statement, or when it is woken.
//
// # Two leaders
//
// There is one lease, so in the database there is one leader at any time. A process
// that was stopped for longer than its lease, or cut off from the database, is not
// the leader any more, and learns it from the context of OnGranted, which ends a
// little before the lease does, and from IsLeader. What it does without looking at
// either is not prevented. Where that must do no harm, use fencing: the hold, with
// its token, is in the context (registry.HoldFromContext).
package leader
