package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Tx is a transaction of the caller's in the database that the locks are in.
// *sql.Tx and *sqlx.Tx have it, whatever the driver and however it is wrapped.
// *sql.DB and *sql.Conn do not, and must not: outside a transaction the row's
// lock would be gone with the answer. For a *sql.Conn with a BEGIN of its own
// write a type that adds the two methods.
type Tx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// AssertHeld locks the row of a lease until tx ends, and says what it found:
// LeaseStands, LeaseExpired, LeaseTaken or LeaseDeleted. While tx is open
// nobody else can take the row, prolong it or delete it, not even after the
// lease has expired: they wait for tx. So if it says LeaseStands, tx can commit
// only while the lock has been granted to nobody since. After every other
// answer, and after an error, roll back.
//
// It sends one statement, in tx and under ctx, and needs no other connection.
// If it has to wait for the row, it judges what is there after the wait, by the
// clock at the start of the statement.
//
// Errors: ErrTransient if running the whole transaction again may help. That
// includes a transaction of Postgres' stricter levels, of MariaDB with
// innodb_snapshot_isolation, or of SQLite, that has read something before the
// row was written the last time, as every renewal does. ErrTable if the table
// is not there; ErrInvalid; ErrClosed.
//
// It is no part of LockRepository: only a store that shares its transactions
// with the data can do it. Package fencing has the form for users.
func (r *DefaultLockRepository) AssertHeld(ctx context.Context, tx Tx, lease Lease) (LeaseStatus, error) {
	if err := errors.Join(r.ready(), CheckKey(lease.Key)); err != nil {
		return LeaseStatus{}, err
	}
	if tx == nil {
		return LeaseStatus{}, invalid("the transaction is nil")
	}
	found, err := tx.QueryContext(ctx, r.assertText(lease))
	if err != nil {
		return LeaseStatus{}, r.failInTx(err)
	}
	rows, err := readRows(found)
	switch {
	case err != nil:
		return LeaseStatus{}, r.failInTx(err)
	case len(rows) == 0:
		return LeaseStatus{State: LeaseDeleted}, nil
	case rows[0].Unseen:
		return LeaseStatus{}, &opError{op: r.assert.op, table: r.table, class: refused, err: errUnseen,
			hint: "begin the transaction after the lock was acquired, and run this one again"}
	}
	return r.status(rows[0], lease), nil
}

// assertText is the statement with the values in it. With parameters it would
// be two round trips on most drivers, as it cannot stay prepared on connections
// that are not ours. Digits, and what a region consists of, need no quoting.
func (r *DefaultLockRepository) assertText(lease Lease) string {
	return strings.NewReplacer(
		"{hex}", fmt.Sprintf("%x", lease.Key),
		"{escaped}", strings.ReplaceAll(fmt.Sprintf(" % x", lease.Key), " ", `\x`),
		"{region}", r.config.region,
		"{attempted}", strconv.FormatInt(lease.Attempt, 10),
	).Replace(r.assert.bound)
}

var errUnseen = errors.New("the transaction's snapshot does not show the lease: it was taken before, or the row was deleted")

// failInTx wraps an error of a statement in the caller's transaction, where it
// may have reasons that no statement on our own pool has.
func (r *DefaultLockRepository) failInTx(err error) error {
	wrapped := r.wrap(r.assert.op, err).(*opError)
	code, _ := sqliteCode(err)
	switch {
	case readOnly(err):
		wrapped.hint = "the transaction, or its database, is read-only"
	case missingTable(err), strings.HasPrefix(sqlState(err), "42"), mysqlNumber(err) != 0 && wrapped.class == permanent, code == 1:
		wrapped.hint = fmt.Sprintf("the transaction must be of the database that the locks are in (%s), and see the table under this name and with the right to update it", r.dialect.vendor)
	}
	return wrapped
}
