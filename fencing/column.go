package fencing

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// ColumnGuard is a [Guard] that remembers the highest token in a column of the
// resource's own row, such as account.fence of account.id, so that it needs no
// table of its own. It is safe for concurrent use and needs no closing.
type ColumnGuard struct{ check check }

// NewColumnGuard returns a guard for the rows of a table. keyColumn must be
// unique, at best the primary key. tokenColumn must be a BIGINT (on SQLite an
// INTEGER) that nobody else writes; NULL counts as 0. The names are letters,
// digits and underscores, at most 63 each, the table's optionally behind a
// schema name and a dot; they stand in the SQL as they are, without quotes.
//
// A bad name matches ErrInvalid; a table or column that is not there is the
// database's error. NewColumnGuard never changes the database.
func NewColumnGuard(ctx context.Context, db Pool, table, keyColumn, tokenColumn string) (*ColumnGuard, error) {
	if !tablePattern.MatchString(table) {
		return nil, invalid("table %s: want letters, digits and underscores, at most 63, optionally after a schema name and a dot", quote(table))
	}
	for _, column := range []string{keyColumn, tokenColumn} {
		if !columnPattern.MatchString(column) {
			return nil, invalid("column %s: want letters, digits and underscores, at most 63", quote(column))
		}
	}
	if strings.EqualFold(keyColumn, tokenColumn) {
		return nil, invalid("column %s cannot be both the key and the token", quote(keyColumn))
	}
	name, err := vendor.Detect(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("fencing: %w", err)
	}
	if err := start(ctx, db, table, keyColumn, tokenColumn); err != nil {
		return nil, fmt.Errorf("fencing: table %s with the columns %s and %s: %w", table, keyColumn, tokenColumn, err)
	}
	write, look := columnTexts(name)
	marks := []string{"{table}", table, "{key}", keyColumn, "{highest}", tokenColumn}
	return &ColumnGuard{check{
		db:    db,
		write: fill(name, write, marks...),
		look:  fill(name, look, marks...),
		args:  func(key any, token int64) []any { return []any{token, key, token} },
	}}, nil
}

// columnTexts gives the statements that write a token and look at it. The
// write leaves a row with a higher token alone, so that no trigger of the
// user's sees a refused writer. The look tells apart what changed no row, and
// finds a key that is not unique. See guardTexts for the FOR UPDATE.
func columnTexts(name string) (write, look string) {
	write = "UPDATE {table} SET {highest} = {token} WHERE {key} = ? AND ({highest} IS NULL OR {highest} <= {token})"
	look = "SELECT {highest} FROM {table} WHERE {key} = ?"
	if name == vendor.MySQL || name == vendor.MariaDB {
		look += " FOR UPDATE"
	}
	return write, look
}

// Check is [Guard.Check] for the row whose key column equals key. Give key the
// Go type that the column has, so that the database compares without
// converting. A key without a row matches ErrNoResource.
func (g *ColumnGuard) Check(ctx context.Context, tx Tx, key any, token int64) error {
	return g.check.run(ctx, tx, key, token)
}

// Advance is [Guard.Advance] for the row whose key column equals key.
func (g *ColumnGuard) Advance(ctx context.Context, key any, token int64) error {
	return g.check.advance(ctx, key, token)
}

var (
	columnPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	tablePattern  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)
)
