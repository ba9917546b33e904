// Package renew keeps many leases alive with few requests.
//
// A Scheduler looks after all leases of one registry with a single timer: no
// goroutine, no timer and no connection belongs to one lease. It renews each
// lease a third of its TTL after the last renewal, leases that are due at about
// the same time in one request; it asks again, with a growing pause, while a
// request fails; and it looks at each lease when its time is up. Looking never
// waits for a request, so a lease that ends while the database does not answer
// is noticed on time. ShedLock's name for the thing is KeepAliveLockProvider,
// which needs a task per lock; Spring leaves renewing to the caller.
//
// The package knows no database, no lock and no clock but the process's: what a
// lease is, and how long it can be relied on, its user tells by Lease.Look.
package renew
