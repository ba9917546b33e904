// Package fencing protects data from a holder that has lost its lock and does
// not know it yet: one that was paused, suspended or cut off for longer than
// its lease, and now goes on where it stopped.
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
// A guard refuses a stale token under every isolation level. The database may
// end a transaction with an error of its own instead:
//
//   - under the stricter levels, if the resource was written after the
//     transaction first read: 40001 on Postgres, 1020 on MariaDB with
//     innodb_snapshot_isolation, SQLITE_BUSY on SQLite;
//   - 1213 (deadlock) on MySQL and MariaDB, if several wait for the very first
//     writer of a resource in INT_LOCK_FENCE and that one rolls back.
//
// Such an error comes through wrapped, errors.As finds the driver's, and the
// whole transaction may be run again; then it passes or is refused. To avoid
// most of them call Advance after acquiring and Check first in a transaction.
package fencing
