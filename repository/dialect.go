package repository

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// dialect is one vendor's SQL: one value, one file of the vendor's name.
//
// To add a vendor: write that file, its script in package schema, its name in
// internal/vendor, its line in dialects below, and its entry in
// internal/testdb; then run the suites. CONTRIBUTING.md has the steps.
//
// The texts use these marks, filled in by fill:
//
//	{table}    the lock table
//	{tokens}   what fencing tokens are drawn from
//	{columns}  the columns of an INSERT, {row} their values
//	{expires}  the column that says when a lease ends
//	{now}      the database's UTC clock, on the scale of {expires}
//	{end}      {now} plus :ttl
//	{later}    the later of {end} and {expires}: a lease is never shortened
//	{left}     microseconds from {now} to {expires}
//	{until}    microseconds from the clock to CREATED_DATE, so it is not above 0
//	{mine}     this client and attempt own the row
//	{attempt}  the attempt to be written
//	{freed}    what a release does beside deleting a row, in its RETURNING
//
// and those of Renew these, filled in by newBatch:
//
//	{keys}, {attempts}  the leases
//	{size}              how many there are
//
// and those of AcquireBatch and DeleteBatch are about a row r of a list, see
// newListStatement.
//
// and assert these, filled in by AssertHeld:
//
//	{hex}        the LOCK_KEY in hexadecimal digits: 6b6579
//	{escaped}    the same for an E'' string: \x6b\x65\x79
//	{region}     the region as it is, of letters, digits and _.:-
//	{attempted}  the attempt as a number
type dialect struct {
	vendor   string
	bindType int // sqlx's kind of placeholder

	clock  string // the UTC clock at the start of the statement
	end    string // {now} plus :ttl microseconds
	max    string // the function that gives the larger of two values
	left   string // microseconds from {now} to {expires}
	shift  func(time.Duration) string
	params map[string]string // how a parameter is written, where :name alone has no type
	mark   string            // how {attempt} is written, where :attempt alone says too little

	// acquire is the text of the one statement that takes a key, and run
	// executes it and reads the answer.
	acquire string
	run     func(context.Context, *DefaultLockRepository, values) (Outcome, error)
	// peek is a read before the write: it locks nothing, and its answer decides
	// nothing unless it is "held".
	peek       string
	alwaysPeek bool // not only where the last answer was "held"

	// acquireToken is acquire with a token drawn in the same statement, where
	// the vendor can. Elsewhere, and after custom queries, draw is a statement
	// of its own, and drawn executes it: 0 if the lease does not stand any more.
	acquireToken string
	draw         string
	drawn        func(context.Context, *DefaultLockRepository, values) (int64, error)
	tokenFault   string // a query that names what is wrong with the source, or gives ''
	tokenGrant   string // what a user needs, as in GRANT

	insert    string                     // default of the two-statement path
	renew     string                     // for RenewQuery: one lease, in the simplest words
	renewMany string                     // a batch
	assert    string                     // in the caller's transaction: lock the row, then look at it
	changed   func(result) (bool, error) // an UPDATE or INSERT found its row

	many batchDialect // AcquireBatch and DeleteBatch, see batch.go

	after      string              // the key a look begins behind, if it has to be typed
	freed      func(config) string // for WithNotify and WithAsyncRelease; nil: no such thing
	columnType map[string]string   // for the statements the start check proposes
	timeTypes  []string            // what the driver may call the type of a date column
	class      func(error) class   // beyond the common ones, see errors.go
	setting    string              // a query that must give 1, and why
	settingWhy string
}

// result is the part of sql.Result a dialect looks at.
type result interface {
	LastInsertId() (int64, error)
	RowsAffected() (int64, error)
}

func dialects() map[string]dialect {
	return map[string]dialect{
		vendor.Postgres: postgres(),
		vendor.MySQL:    mysql(),
		vendor.MariaDB:  mariadb(),
		vendor.SQLite:   sqlite(),
	}
}

// The statements that read the same everywhere.
const (
	updateText = `UPDATE {table} SET CLIENT_ID = :client_id, {expires} = {later}, ATTEMPT = {attempt}, HOLDER = :holder, LOCK_NAME = :lock_name
WHERE LOCK_KEY = :lock_key AND REGION = :region AND ({mine} OR {expires} < {now})`

	deleteText = `DELETE FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine}`

	// A negative attempt is nobody's. Attempts are positive.
	endAfterText = `UPDATE {table} SET {expires} = {end}, ATTEMPT = -ATTEMPT
WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine}`

	isAcquiredText = `SELECT 1 FROM {table}
WHERE LOCK_KEY = :lock_key AND REGION = :region AND CLIENT_ID = :client_id AND {expires} >= {now}`

	infoText = `SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, {left} AS remaining, {until} AS made
FROM {table} WHERE REGION = :region`
	listText = infoText + ` ORDER BY LOCK_KEY`
	getText  = infoText + ` AND LOCK_KEY = :lock_key`

	// What a row says about its lease.
	leaseColumns = `COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, {left} AS remaining`

	peekText = `SELECT COALESCE(CLIENT_ID, ''), COALESCE(HOLDER, ''), {left}
FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND {expires} >= {now} AND {mine} IS NOT TRUE`

	// Whatever is there under the keys of a batch.
	findText = `SELECT LOCK_KEY AS lock_key, ` + leaseColumns + `
FROM {table} WHERE REGION = :region AND LOCK_KEY IN ({keys})`

	// The leases of a batch that stand. Each attempt belongs to one key.
	dueText = `LOCK_KEY IN ({keys}) AND REGION = :region AND CLIENT_ID = :client_id AND ATTEMPT IN ({attempts}) AND {expires} >= {now}`
)

// fill replaces the marks. The layout of Spring 6.5 and older has no column
// for the end of a lease; it says "CREATED_DATE is older than timeToLive". So
// there {expires} is CREATED_DATE and {now} runs timeToLive behind the clock,
// and every statement holds for both layouts.
func (d dialect) fill(text string, c config) string {
	columns, row := "CREATED_DATE, EXPIRED_AFTER", d.clock+", {end}"
	expires, now := "EXPIRED_AFTER", d.clock
	until := strings.ReplaceAll(d.left, "{expires}", "CREATED_DATE")
	if c.spring6 > 0 {
		columns, row = "CREATED_DATE", "{end}"
		expires, now = "CREATED_DATE", d.shift(c.spring6)
		until = "0"
	}
	attempt := cmp.Or(d.mark, ":attempt")
	text = strings.NewReplacer(
		"{columns}", "LOCK_KEY, REGION, CLIENT_ID, "+columns+", ATTEMPT, HOLDER, LOCK_NAME",
		"{row}", ":lock_key, :region, :client_id, "+row+", "+attempt+", :holder, :lock_name",
		"{attempt}", attempt,
		"{mine}", "(CLIENT_ID = :client_id AND ATTEMPT = :attempt)",
		"{left}", d.left,
		"{until}", until,
		"{freed}", d.freedText(c),
		"{later}", d.max+"({expires}, {end})",
	).Replace(text)
	text = strings.ReplaceAll(text, "{end}", d.end)
	text = strings.NewReplacer("{table}", vendor.Table(c.prefix), "{tokens}", vendor.TokenSource(c.prefix), "{expires}", expires, "{now}", now).Replace(text)
	for name, typed := range d.params {
		text = strings.ReplaceAll(text, ":"+name, typed)
	}
	return text
}

func (d dialect) freedText(c config) string {
	if d.freed == nil {
		return ""
	}
	return d.freed(c)
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
