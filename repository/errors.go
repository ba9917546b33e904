package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"regexp"
	"strings"
)

// opError is an error of one operation. It says what was attempted on which
// table and, where there is something to do about it, what.
type opError struct {
	op, table string
	hint      string
	transient bool
	kind      error // ErrTable or nil
	err       error
}

func (e *opError) Error() string {
	text := fmt.Sprintf("repository: %s on table %s: %s", e.op, e.table, scrub(e.err.Error()))
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

func (e *opError) Unwrap() error { return e.err }

func (e *opError) Is(target error) bool {
	return target == ErrTransient && e.transient || e.kind != nil && target == e.kind
}

// What a driver's error may quote of a DSN: user:password@ and password=.
var (
	userinfo = regexp.MustCompile(`[^\s"'/@]*:[^\s"'@]*@`)
	password = regexp.MustCompile(`(?i)(password=)('[^']*'|[^\s&;"']*)`)
)

// scrub keeps passwords out of error texts: a DSN that does not parse is
// quoted whole by the packages that tried to.
func scrub(text string) string {
	return password.ReplaceAllString(userinfo.ReplaceAllString(text, "***@"), "${1}***")
}

// wrap classifies a database error.
func (r *DefaultLockRepository) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &opError{op: op, table: r.table, err: err}
	e.transient = transientAnywhere(err) || r.mayPass(err)
	switch {
	case strings.Contains(err.Error(), "sql: database is closed"):
		e.hint = "the *sql.DB was closed: close the registry before it"
	case readOnly(err):
		e.hint = "the database is read-only: connect to the primary, or open the file for writing"
	case sqlState(err) == "42P05" || sqlState(err) == "26000":
		e.hint = "if a pooler in transaction mode is in between, connect directly, or use pgbouncer 1.21 or newer with max_prepared_statements"
	case missingTable(err):
		e.kind = ErrTable
		e.hint = fmt.Sprintf("create it with schema.Apply, or run the script schema/%s.sql", r.dialect.vendor)
	}
	return e
}

// mayPass asks the dialect; before the server has said what it is, all of them.
func (r *DefaultLockRepository) mayPass(err error) bool {
	if r.dialect.transient != nil {
		return r.dialect.transient(err)
	}
	for _, d := range dialects() {
		if d.transient(err) {
			return true
		}
	}
	return false
}

// transientAnywhere recognises what looks the same on every vendor: a timeout
// of this request and a connection that broke or could not be made.
func transientAnywhere(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errSentAgain) || errors.As(err, &network) ||
		strings.Contains(err.Error(), "invalid connection") || // go-sql-driver/mysql
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
	for ; err != nil; err = errors.Unwrap(err) {
		if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
			if f := v.FieldByName("Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
				return uint16(f.Uint())
			}
		}
	}
	return 0
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

// outdatedStatement: the server does not know the prepared statement any more
// (a pooler switched servers), or the table changed under it. Nothing ran.
func outdatedStatement(err error) bool {
	state, number := sqlState(err), mysqlNumber(err)
	return state == "26000" || state == "0A000" && strings.Contains(err.Error(), "cached plan") ||
		number == 1243 || number == 1615
}
