// Package middleware is a business lock around requests: one request at a time for
// a user and an operation, and a duplicate is refused at once.
//
//	apply, err := middleware.New(locks, "loan.apply")
//
//	loan, err := middleware.Do(ctx, apply, middleware.Key(userID, class), func(ctx context.Context) (Loan, error) {
//		return service.Apply(ctx, userID, class) // one transaction
//	})
//
// The second click, the impatient client and the proxy that sends again get a
// RefusedError, ready to become a 409, before they reach the service; so does the
// same request on another instance. Guard.HTTP and Unary wrap handlers of net/http
// and gRPC in the same way.
//
// # What it is not
//
// The lock goes around the transaction: it is given back when the function has
// returned, after the commit, so that the next request sees what this one wrote.
// A lock that was taken within the transaction would be free for others before
// they can see its data.
//
// A lock is no idempotency. A repetition that comes when the first request has
// been answered finds the lock free. The function has to look whether the work is
// done already (which is safe, as nobody else is at it), or a unique constraint
// has to refuse the second row. WithKeepFor refuses repetitions for a while after a
// success, for what reads from a replica that lags behind.
//
// A lease ends. A function that takes longer than the TTL, five minutes unless
// WithTTL says otherwise, loses the lock, and its context ends; a process that was
// stopped for longer does not notice at once. Where that must do no harm, call
// fencing.AssertHeld in the transaction, with registry.HoldFromContext's hold.
package middleware
