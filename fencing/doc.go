// Package fencing protects data from a holder that has lost its lock and does
// not know it yet: one that was paused, suspended or cut off for longer than
// its lease, and now goes on where it stopped.
//
// # Which defence, when
//
// There are three, in rising strength; they can be combined.
//
//   - registry.Hold's Held and Context: the process stops by itself before its
//     lease ends. Always use them; they cannot call back what is on its way.
//   - [Guard] and [ColumnGuard]: the resource refuses whoever shows a lower
//     fencing token than one it has seen. For resources that are in another
//     database than the locks, or in another kind of store.
//   - [AssertHeld]: the transaction that writes proves that the lock is still
//     the hold's. For resources in the database that the locks are in. It is
//     exact, from the moment a lock is granted, and needs neither a token nor
//     anything at the resource.
//
// # AssertHeld
//
//	hold, err := locks.Obtain("interest").LockContext(ctx)
//	defer hold.Unlock(ctx)
//
//	tx, err := db.BeginTx(ctx, nil)                      // after the lock was acquired
//	defer tx.Rollback()
//	if err := fencing.AssertHeld(ctx, tx, hold); err != nil {
//		return err                                   // ErrLockLost: stop
//	}
//	... read and write, with tx ...
//	return tx.Commit()
//
// It locks the lock's row until the transaction ends. Whoever wants to take an
// expired lock over, prolong or delete it, needs that row and waits. So if the
// lease runs out before the commit, the commit is as safe as before, and the
// next holder begins after it.
//
// First or last in the transaction? First costs nothing more and is the rule
// for short transactions; under READ UNCOMMITTED, under Postgres' REPEATABLE
// READ and SERIALIZABLE, under MariaDB's innodb_snapshot_isolation and on
// SQLite it should be first (see Isolation levels). Last, right before the
// commit, keeps the row locked for a moment only, which suits long
// transactions: what it locks cannot be renewed meanwhile.
//
// What goes with it:
//
//   - A transaction that stays open keeps its own lease from being renewed
//     (others are not affected, except on SQLite). The hold is then lost at the
//     end of its trusted time, though the transaction may still commit. If it
//     should, do not begin it with a context of the hold, as the one inside
//     ExecuteLocked is: database/sql rolls back when that ends.
//   - On Postgres others see that the lock is held. On MySQL and MariaDB they
//     see a database that does not answer, so a try fails with ErrUnavailable
//     after a second or so, a wait after the registry's WithOutageLimit.
//   - On SQLite, which has one writer, everybody waits until the transaction
//     ends: other locks, and renewals too. Keep it much shorter than a lease.
//   - Give the locks a *sql.DB of their own, or one with room: in a pool of one
//     connection an open transaction keeps leases from being renewed.
//   - Commit before you Unlock, which waits for the transaction, fails with
//     ErrUnavailable, and is made up for after it.
//   - Do not roll back to a savepoint that is older than the assertion: that may
//     unlock the row. On MySQL and MariaDB no DDL, which commits; and a deadlock
//     (1213) in any statement has rolled back everything, so run the whole
//     transaction again, never that statement alone.
//   - All transactions under one lock should assert at the same place, first or
//     last. If one asserts first, and then wants the row of a resource that
//     another has written to before it asserts, they deadlock, and the database
//     ends one of them with an error. Assert several locks in one fixed order.
//   - The transaction's user must be allowed to SELECT and UPDATE the table, and
//     find it under the name that the repository has for it.
//   - On Galera and group replication, row locks do not reach other nodes: all
//     lock traffic and all guarded writes must go to one node.
//
// # Tokens
//
// A fencing token is a number that rises with every grant of a lock. Whoever
// writes shows its token to the resource, and the resource refuses a token
// that is lower than one it has already seen:
//
//	guard, err := fencing.NewGuard(ctx, db)              // once
//
//	err = guard.Advance(ctx, "interest", token)          // right after the lock was acquired
//
//	tx, err := db.BeginTx(ctx, nil)                      // for every write
//	defer tx.Rollback()
//	if err := guard.Check(ctx, tx, "interest", token); err != nil {
//		return err                                   // ErrStaleToken: stop
//	}
//	... write, with tx ...
//	return tx.Commit()
//
// [Guard] keeps the highest tokens in a table of its own, [ColumnGuard] in a
// column of the rows it protects. Check and the writes are one transaction, so
// either both happen or neither, in whichever order they stand in it.
//
// # The gap, and how Advance closes it
//
// The resource knows only the tokens that it was shown. From the moment a lock
// is granted to a new holder until that holder shows its token for the first
// time, the old holder still passes: it may write after the new one has read.
// Advance shows the token at once. When it has returned nil, the writes of
// earlier holders are either committed, and visible to the new one, or will be
// refused. So call it after acquiring and before reading anything.
//
// A holder that is paused in the middle of its transaction keeps the resource
// locked until the database ends that transaction. Nobody writes meanwhile,
// which is safe, but Advance and Check wait: give them a context with a
// deadline, and the database a limit for idle transactions (on Postgres
// idle_in_transaction_session_timeout).
//
// # One resource, one lock
//
// Tokens are counted per region and key. Those of two keys say nothing about
// each other, so all writers of one resource must take one and the same lock.
// The simplest rule is to name the resource like the lock. A transaction that
// checks several resources should check them in one fixed order, as with any
// row locks.
//
// If the tokens begin anew (another region, the table of tokens lost or
// restored from an old copy) a guard refuses everybody, because it remembers
// higher ones. Once no old holder can be running, delete the resource's row
// from INT_LOCK_FENCE or set the column to NULL. Rows are never deleted
// otherwise: a row that is gone has forgotten whom to refuse.
//
// # What a token is not
//
// A token puts holders in order. It is no proof of who somebody is and gives
// no right: anybody who can write to the database can make up a number, and a
// very high one locks everybody out. Never take one from an untrusted client.
//
// Nor does a token say that its holder still has the lock; only that nobody
// with a later one has been here. And it protects what is checked: a mail that
// was sent stays sent. Keep a constraint, such as a unique key per account and
// day, as the last defence: it also catches what is no matter of locks, a job
// that runs twice one after the other. The example shows both.
//
// # Other stores
//
// A store that is no SQL database can do the same if it can compare and write
// in one step. Hand the token over as decimal text, strconv.FormatInt(token,
// 10), in a header or in an object's metadata, and compare it as a 64-bit
// number: as texts, 10 is less than 9, and JavaScript's numbers are exact only
// up to 2^53.
//
// # Isolation levels
//
// A guard refuses a stale token, and AssertHeld a lost lock, under every
// isolation level. The database may end a transaction with an error of its own
// instead:
//
//   - under the stricter levels, if the resource, or for AssertHeld the lock's
//     row, was written after the transaction first read, as a renewal does:
//     40001 on Postgres, 1020 on MariaDB with innodb_snapshot_isolation; on
//     SQLite, whatever was written, SQLITE_BUSY;
//   - 1213 (deadlock) on MySQL and MariaDB, if several wait for the very first
//     writer of a resource in INT_LOCK_FENCE and that one rolls back.
//
// Such an error comes through wrapped, errors.As finds the driver's, and the
// whole transaction may be run again; then it passes or is refused. To avoid
// most of them call Advance after acquiring and Check or AssertHeld first in a
// transaction; on SQLite begin it with _txlock=immediate.
//
// Where a transaction reads from one snapshot, AssertHeld also refuses one that
// is older than the lease: what it shows may be older than the last holder's
// last write. The error matches repository.ErrTransient: run the transaction
// again. Under Postgres' stricter levels a lock's row that was deleted looks the
// same, until the hold learns by itself that it is lost. Under READ COMMITTED
// every statement has its own snapshot, and nobody can see what was read before
// the lock was acquired: begin the transaction after it.
package fencing
