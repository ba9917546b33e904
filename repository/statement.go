package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// The named parameters of all statements, ours and custom ones. :ttl counts
// microseconds; the clock that it is added to is the database's.
var parameters = []string{"lock_key", "region", "client_id", "attempt", "ttl", "holder", "lock_name"}

// values are what the parameters stand for in one call.
type values map[string]any

// statement is one SQL text of a repository, prepared on first use. A prepared
// statement is what makes a call one round trip on every driver, without the
// user having to know a setting of the DSN; database/sql prepares it again on
// each new connection by itself.
type statement struct {
	op    string // for error texts: "acquire", "renew", ...
	text  string // with named parameters, as a getter shows it
	bound string // with the driver's placeholders
	names []string
	size  int // of a batch, see batchSizes

	// For when it is not prepared, see store: the text with a question mark for
	// each value, and the parameters in their order.
	marked string
	order  []string

	prepared atomic.Pointer[sql.Stmt]
}

// newStatement compiles text for a batch of size leases, 0 if it is about one
// without a list. required names the parameters that must occur,
// also those that only we may use.
func newStatement(op, text string, custom bool, bindType, size int, required ...string) (*statement, error) {
	// sqlx reads "::" as an escaped colon, Postgres as a cast: keep the cast.
	escaped := strings.ReplaceAll(text, "::", "::::")
	identity := make(values, len(parameters))
	for _, p := range parameters {
		identity[p] = p
	}
	for _, r := range required {
		identity[r] = r
	}
	for i := range size {
		for _, list := range []string{"lock_key", "attempt"} {
			name := listed(list, i)
			identity[name] = name
		}
	}
	// Binding each name to itself yields the names in order of appearance.
	bound, args, err := sqlx.Named(escaped, map[string]any(identity))
	if err != nil {
		return nil, invalid("%s query: %w; the parameters are :%s", op, err, strings.Join(parameters, ", :"))
	}
	s := &statement{op: op, text: text, size: size}
	for _, a := range args {
		s.names = append(s.names, a.(string))
	}
	s.marked, s.order = bound, s.names
	if bindType == sqlx.DOLLAR && !custom {
		s.bound, s.names = numbered(bound, s.names)
	} else {
		s.bound = sqlx.Rebind(bindType, bound)
	}
	for _, r := range required {
		if !slices.Contains(s.names, r) {
			return nil, invalid("%s query: parameter :%s is missing in %q", op, r, text)
		}
	}
	return s, nil
}

// numbered gives a parameter that occurs several times one number, so that it is
// sent, and read, once. Custom queries keep one for each place, as the server
// gives a parameter one type only.
func numbered(text string, names []string) (string, []string) {
	var out strings.Builder
	var once []string
	for _, name := range names {
		before, after, _ := strings.Cut(text, "?")
		i := slices.Index(once, name)
		if i < 0 {
			i = len(once)
			once = append(once, name)
		}
		fmt.Fprintf(&out, "%s$%d", before, i+1)
		text = after
	}
	out.WriteString(text)
	return out.String(), once
}

// prepare returns the prepared statement. Two first callers may both prepare;
// a lock around it would make one wait for the other's connection.
func (s *statement) prepare(ctx context.Context, db *store) (*sql.Stmt, error) {
	if stmt := s.prepared.Load(); stmt != nil {
		return stmt, nil
	}
	stmt, err := db.PrepareContext(ctx, s.bound)
	if err != nil {
		return nil, err
	}
	if !s.prepared.CompareAndSwap(nil, stmt) {
		stmt.Close()
		return s.prepare(ctx, db)
	}
	return stmt, nil
}

// forget drops the prepared statement; the next use prepares it anew.
func (s *statement) forget() error {
	if stmt := s.prepared.Swap(nil); stmt != nil {
		return stmt.Close()
	}
	return nil
}

// args puts the values into the order of the placeholders. The first one
// counts how often the driver was handed the arguments.
func (s *statement) args(v values, sent *sendCount) []any {
	args := make([]any, len(s.names))
	for i, name := range s.names {
		args[i] = v[name]
	}
	if len(args) > 0 {
		sent.value, args[0] = args[0], sent
	}
	return args
}

// sendCount counts how often database/sql sent a statement. Some drivers
// (lib/pq) report a connection that died after the statement was sent as
// driver.ErrBadConn, upon which database/sql silently runs it again on another
// one. The arguments are converted anew for every run, and that shows here.
type sendCount struct {
	value any
	runs  int // converted by the one goroutine that makes the call
}

// Value implements driver.Valuer.
func (c *sendCount) Value() (driver.Value, error) {
	c.runs++
	return driver.DefaultParameterConverter.ConvertValue(c.value)
}

// unsure marks an error of a statement that was sent before: the error is that
// of its last run, and an earlier one may have had its effect.
func (c *sendCount) unsure(err error) error {
	if err == nil || c.runs == 0 {
		return err
	}
	return &sentError{runs: c.runs, error: err}
}

type sentError struct {
	runs int
	error
}

func (e *sentError) Unwrap() error { return e.error }

// again reports whether the statement may have run more than once.
func (c *sendCount) again() bool { return c.runs > 1 }

func (s *statement) exec(ctx context.Context, db *store, v values) (sql.Result, *sendCount, error) {
	sent := new(sendCount)
	if db.plain.Load() {
		conn, text, err := s.asText(ctx, db, v)
		if err != nil {
			return nil, sent, err
		}
		defer conn.Close()
		sent.runs = 1
		result, err := conn.ExecContext(ctx, text)
		return result, sent, sent.unsure(err)
	}
	stmt, err := s.prepare(ctx, db)
	if err != nil {
		return nil, sent, err
	}
	result, err := stmt.ExecContext(ctx, s.args(v, sent)...)
	return result, sent, sent.unsure(err)
}

// asText is the statement with its values, and a connection to send it on.
func (s *statement) asText(ctx context.Context, db *store, v values) (*sql.Conn, string, error) {
	text, err := s.literals(v, db.vendor)
	if err != nil {
		return nil, "", err
	}
	conn, err := db.conn(ctx)
	return conn, text, err
}

// open sends the statement and returns its rows; close ends them.
func (s *statement) open(ctx context.Context, db *store, v values, sent *sendCount) (rows *sql.Rows, end func() error, err error) {
	if db.plain.Load() {
		conn, text, err := s.asText(ctx, db, v)
		if err != nil {
			return nil, nil, err
		}
		sent.runs = 1
		rows, err := conn.QueryContext(ctx, text)
		if err != nil {
			conn.Close()
			return nil, nil, sent.unsure(err)
		}
		return rows, func() error { return errors.Join(rows.Close(), conn.Close()) }, nil
	}
	stmt, err := s.prepare(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	rows, err = stmt.QueryContext(ctx, s.args(v, sent)...)
	if err != nil {
		return nil, nil, sent.unsure(err)
	}
	return rows, rows.Close, nil
}

// query runs the statement and scans every row. The last row is left in dest:
// a MariaDB cluster that retries a statement on its own sends the rows of the
// rolled-back run first.
func (s *statement) query(ctx context.Context, db *store, v values, dest ...any) (found bool, sent *sendCount, err error) {
	sent, err = s.each(ctx, db, v, func() { found = true }, dest...)
	return found && err == nil, sent, err
}

// each runs the statement and calls row for every row, scanned into dest.
func (s *statement) each(ctx context.Context, db *store, v values, row func(), dest ...any) (*sendCount, error) {
	sent := new(sendCount)
	rows, end, err := s.open(ctx, db, v, sent)
	if err != nil {
		return sent, err
	}
	defer end()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return sent, sent.unsure(fmt.Errorf("read the answer: %w", err))
		}
		row()
	}
	if err := rows.Err(); err != nil {
		return sent, sent.unsure(err)
	}
	return sent, end()
}

// row is what a SELECT of whole rows gives. A column that it leaves out is zero.
type row struct {
	Key       string `db:"lock_key"`
	ClientID  string `db:"client_id"`
	Attempt   int64  `db:"attempt"`
	Holder    string `db:"holder"` // made readable by rows
	Name      string `db:"lock_name"`
	Remaining int64  `db:"remaining"` // microseconds
	Made      int64  `db:"made"`      // microseconds, not above 0
	Unseen    bool   `db:"unseen"`    // the transaction's snapshot may be older than the lease
}

func (r row) info() LockInfo {
	return LockInfo{Key: r.Key, Name: r.Name, ClientID: r.ClientID, Holder: r.Holder, attempt: r.Attempt,
		Age: -time.Duration(r.Made) * time.Microsecond, Remaining: r.left()}
}

func (r row) left() time.Duration { return time.Duration(r.Remaining) * time.Microsecond }

// rows runs the statement and returns all its rows.
func (s *statement) rows(ctx context.Context, db *store, v values) ([]row, error) {
	found, end, err := s.open(ctx, db, v, new(sendCount))
	if err != nil {
		return nil, err
	}
	defer end()
	return readRows(found)
}

// readRows reads and closes what a SELECT of whole rows gives.
func readRows(found *sql.Rows) ([]row, error) {
	defer found.Close()
	var all []row
	if err := sqlx.StructScan(found, &all); err != nil {
		return nil, err
	}
	for i := range all {
		r := &all[i]
		r.Key = strings.TrimRight(r.Key, " ")
		r.ClientID, r.Holder = owner(r.ClientID, r.Holder)
	}
	return all, nil
}
