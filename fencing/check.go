package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/jmoiron/sqlx"
)

// Tx is the caller's transaction. *sql.Tx and *sqlx.Tx satisfy it; *sql.DB and
// *sql.Conn do not, and must not: outside a transaction the check would be over
// before the write that it protects.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Pool is the database of the resources. *sql.DB and *sqlx.DB satisfy it,
// whatever their driver and however it is wrapped.
type Pool interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Stats() sql.DBStats
}

// check is what both guards have in common: write the token unless the
// resource has seen a higher one, then look which one is there. Neither step
// goes by the number of affected rows, which on MySQL depends on the
// connection's clientFoundRows and on whether a value changed.
//
// The write comes first everywhere. It takes the row's lock, waits for whoever
// has it, and goes by the newest token, whatever the transaction has read
// before; a read first would deadlock on MySQL and be SQLITE_BUSY at once on
// SQLite. It writes an equal token too: under Postgres' stricter levels that
// makes a transaction fail whose snapshot is older than its predecessor's
// commit, where a mere row lock would let it go on with old data.
type check struct {
	db    Pool
	write string // its parameters are in the order that args gives
	look  string // its parameter is the key; empty if write returns the token
	args  func(key any, token int64) []any
}

func (c *check) run(ctx context.Context, tx Tx, key any, token int64) error {
	name := fmt.Sprint(key)
	if err := checkToken(name, token); err != nil {
		return err
	}
	tokens, err := c.tokens(ctx, tx, key, token)
	if err != nil {
		return fmt.Errorf("fencing: check token %d for resource %s: %w", token, quote(name), err)
	}
	switch {
	case len(tokens) == 0:
		return fmt.Errorf("%w: no row has the key %s", ErrNoResource, quote(name))
	case len(tokens) > 1:
		return fmt.Errorf("fencing: %d rows have the key %s, want one: roll back, and guard by a column that is unique", len(tokens), quote(name))
	case tokens[0].Int64 > token:
		return &StaleTokenError{Resource: name, Presented: token, Highest: tokens[0].Int64}
	case tokens[0].Int64 < token:
		return fmt.Errorf("fencing: the row of resource %s has the token %d after %d was written to it; was the row inserted this moment, or is the column too small? want a BIGINT",
			quote(name), tokens[0].Int64, token)
	}
	return nil
}

// checkToken refuses a holder without a token, such as a Java service or one
// whose repository draws none: nobody could tell whether it is a stale one.
func checkToken(name string, token int64) error {
	if token <= 0 {
		return invalid("token %d for resource %s: the lock was granted without a token; tokens are off: build the repository with repository.WithTokens()",
			token, quote(name))
	}
	return nil
}

// tokens writes and looks. One row per resource is what it should find.
func (c *check) tokens(ctx context.Context, tx Tx, key any, token int64) ([]sql.NullInt64, error) {
	if c.look == "" {
		return queryTokens(ctx, tx, c.write, c.args(key, token)...)
	}
	if _, err := tx.ExecContext(ctx, c.write, c.args(key, token)...); err != nil {
		return nil, err
	}
	return queryTokens(ctx, tx, c.look, key)
}

func queryTokens(ctx context.Context, tx Tx, query string, args ...any) ([]sql.NullInt64, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tokens []sql.NullInt64
	for rows.Next() {
		var token sql.NullInt64
		if err := rows.Scan(&token); err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return tokens, rows.Close()
}

// advance is run in a transaction of its own.
func (c *check) advance(ctx context.Context, key any, token int64) error {
	name := fmt.Sprint(key)
	if err := checkToken(name, token); err != nil {
		return err
	}
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fencing: advance resource %s to %d: %w", quote(name), token, err)
	}
	defer tx.Rollback()
	if err := c.run(ctx, tx, key, token); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fencing: advance resource %s to %d: %w", quote(name), token, err)
	}
	return nil
}

// start looks whether the table and its columns are there, by one statement
// that returns no rows.
func start(ctx context.Context, db Pool, table string, columns ...string) error {
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// fill replaces the marks of a statement's text and numbers the parameters
// where the vendor wants that. {token} is a parameter that is a number even
// where the column is not: as texts, 10 is less than 9.
func fill(name, text string, marks ...string) string {
	token, greatest, placeholder := "?", "GREATEST", sqlx.QUESTION
	switch name {
	case vendor.Postgres:
		token, placeholder = "CAST(? AS bigint)", sqlx.DOLLAR
	case vendor.SQLite:
		token, greatest = "CAST(? AS INTEGER)", "max"
	}
	text = strings.NewReplacer(append(marks, "{token}", token, "{greatest}", greatest)...).Replace(text)
	return sqlx.Rebind(placeholder, text)
}
