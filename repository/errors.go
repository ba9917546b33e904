package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// opError is an error of one operation. It says what was attempted on which
// table and, where there is something to do about it, what.
type opError struct {
	op, table string
	hint      string
	class     class
	kind      error // ErrTable or nil
	err       error
}

// class says what an error means for whoever made the request.
type class int

const (
	permanent class = iota // it would happen again
	doubtful               // it may pass, and the request may have taken effect
	refused                // it may pass, and the request had no effect
)

func (e *opError) Error() string {
	text := fmt.Sprintf("repository: %s on table %s: %s", e.op, e.table, vendor.Scrub(e.err.Error()))
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

func (e *opError) Unwrap() error { return e.err }

func (e *opError) Is(target error) bool {
	return target == ErrTransient && e.class != permanent || target == ErrNotExecuted && e.class == refused ||
		e.kind != nil && target == e.kind
}

// wrap classifies a database error.
func (r *DefaultLockRepository) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &opError{op: op, table: r.table, err: err}
	if e.class = classAnywhere(err); e.class == permanent {
		e.class = r.classHere(err)
	}
	// What was refused in the end may have been executed before: a connection
	// that died after sending makes database/sql try again, and fail to dial.
	var sent *sentError
	if e.class == refused && errors.As(err, &sent) && (sent.runs > 1 || notSent(err)) {
		e.class = doubtful
	}
	switch {
	case strings.Contains(err.Error(), "sql: database is closed"):
		e.hint = "the *sql.DB was closed: close the registry before it"
	case readOnly(err):
		e.hint = "the database is read-only: connect to the primary, or open the file for writing"
	case lostStatement(err):
		e.hint = "a pooler in transaction mode seems to be in between; from now on statements are not prepared"
	case errors.Is(err, context.DeadlineExceeded) && r.poolExhausted():
		e.hint = "all connections of the pool are in use: give the locks a *sql.DB of their own, or raise its SetMaxOpenConns"
	case missingTable(err):
		e.kind = ErrTable
		e.hint = r.createHint()
	}
	return e
}

// poolExhausted: whoever wants a connection has to wait for somebody else.
func (r *DefaultLockRepository) poolExhausted() bool {
	stats := r.db.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// classHere asks the dialect; before the server has said what it is, all.
func (r *DefaultLockRepository) classHere(err error) class {
	if r.dialect.class != nil {
		return r.dialect.class(err)
	}
	for _, d := range dialects() {
		if c := d.class(err); c != permanent {
			return c
		}
	}
	return permanent
}

// classAnywhere recognises what looks the same on every vendor: a timeout of
// this request, and a connection that broke or could not be made.
func classAnywhere(err error) class {
	var timeout net.Error
	switch {
	case notSent(err):
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, errSentAgain), errors.Is(err, errLeaseGone), errors.Is(err, errUnclear), errors.As(err, &timeout),
		strings.Contains(err.Error(), "invalid connection"): // go-sql-driver/mysql
		return doubtful
	}
	return permanent
}

// notSent: this run of the statement ended before anything was sent.
func notSent(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial" ||
		strings.Contains(err.Error(), "sql: statement is closed") // prepared anew on the next try
}

// The drivers are not imported, so that a program gets only the one it uses:
// their errors are told by the methods and fields they have. Tests pin each
// against the real driver.

// sqlState returns the five characters that lib/pq and pgx report.
func sqlState(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mysqlNumber returns the field Number of go-sql-driver's MySQLError.
func mysqlNumber(err error) uint16 {
	if err == nil {
		return 0
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		if f := v.FieldByName("Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
			return uint16(f.Uint())
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if n := mysqlNumber(e); n != 0 {
				return n
			}
		}
		return 0
	}
	return mysqlNumber(errors.Unwrap(err))
}

// sqliteCode returns SQLite's result code, as modernc.org/sqlite reports it.
func sqliteCode(err error) (int, bool) {
	var e interface {
		error
		Code() int
	}
	if errors.As(err, &e) {
		return e.Code(), true
	}
	return 0, false
}

// duplicateKey is the one error that a custom insert may answer "held" with.
func duplicateKey(err error) bool {
	code, _ := sqliteCode(err)
	return sqlState(err) == "23505" || mysqlNumber(err) == 1062 ||
		code == 1555 || code == 2067 // primary key, unique
}

func readOnly(err error) bool {
	code, _ := sqliteCode(err)
	switch mysqlNumber(err) {
	case 1290, 1792, 1836:
		return true
	}
	return sqlState(err) == "25006" || code&0xff == 8
}

func missingTable(err error) bool {
	return sqlState(err) == "42P01" || mysqlNumber(err) == 1146 || strings.Contains(err.Error(), "no such table")
}

func (r *DefaultLockRepository) createHint() string {
	return fmt.Sprintf("create it with schema.Apply, or run the script schema/%s.sql", r.dialect.vendor)
}

// denied: the user lacks a right to a table of MySQL or MariaDB.
func denied(err error) bool {
	number := mysqlNumber(err)
	return number == 1142 || number == 1143
}

// outdatedStatement: the server does not know the prepared statement any more
// (a pooler switched servers), or the table changed under it. Nothing ran.
func outdatedStatement(err error) bool {
	state, number := sqlState(err), mysqlNumber(err)
	return lostStatement(err) || state == "0A000" && strings.Contains(err.Error(), "cached plan") ||
		number == 1243 || number == 1615
}
