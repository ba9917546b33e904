// Package registry is a distributed lock registry on the SQL database an
// application already runs: Spring Integration's JdbcLockRegistry for Go.
//
//	repo, err := repository.New(ctx, db)       // checks that the table is there
//	locks, err := registry.New(repo)
//
//	lock := locks.Obtain("group-42")           // a sync.Locker; no I/O yet
//	lock.Lock()
//	defer lock.Unlock()
//
// or, with errors and a context that ends when the lock is lost:
//
//	err = locks.ExecuteLocked(ctx, "group-42", func(ctx context.Context) error {
//		return aggregate(ctx)
//	})
//
// # What is promised
//
// A lock is a lease: a row in a table that says who holds a key and until
// when. While the lease stands, nobody else is granted the key, in this
// process or another. Within a process goroutines get a key in the order in
// which they came; only one of them at a time asks the database for it. Among
// processes there is no order, but each waiter keeps trying.
//
// A lease is renewed while it is held, a third of its TTL after it was granted
// or last renewed, until Unlock. Calls that name a TTL of their own get a lease
// that is not, see WithRenewal. One scheduler does it for all leases of a
// registry, in few requests.
//
// # What is not
//
// A lease that could not be renewed ends when its time is up, whatever its
// holder is doing: a process that was stopped for longer, or whose database did
// not answer, has lost the lock. The holder hears of it in time and with the
// reason: Hold.Context ends, Hold.Held says no, WithOnLost's handler is called,
// and Unlock returns ErrLockLost. Code that does not look does not learn, and
// what it has sent already cannot be called back: package fencing refuses it
// where the data is. docs/safety.md says which defence helps against what.
//
// # Time
//
// The database's clock alone decides when a lease ends. The process only
// decides when to stop believing in it: a margin before the TTL has passed
// since before the request was sent, on its monotonic and its wall clock.
// A grant whose answer comes later than that is not used but given back.
//
// # When the database does not answer
//
// Calls that wait try on, with pauses that grow, for WithOutageLimit's time,
// then fail with ErrUnavailable; tries fail at once. A request whose outcome
// is unknown may have taken the lock all the same, so the registry deletes in
// the background what it left. For other processes nothing stays locked longer
// than its TTL; in its own process a lock is taken until its Unlock.
package registry
