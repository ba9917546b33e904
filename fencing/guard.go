package fencing

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/intlock/intlock/internal/vendor"
)

// Guard refuses writers whose lock has been granted to somebody else since. It
// remembers the highest token of each resource in a table of its own,
// INT_LOCK_FENCE, which lies in the database of the resources; the locks may
// be in another one. It is safe for concurrent use and needs no closing.
type Guard struct{ check check }

// Option configures a Guard.
type Option func(*config)

type config struct{ prefix string }

// WithPrefix sets the prefix of the table name, which is prefix + "LOCK_FENCE".
// Letters, digits and underscores, optionally behind a schema name and a dot.
// Default: "INT_".
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// NewGuard returns a guard for resources in db. It asks the server which
// vendor it is and whether the table is there; schema.Apply creates it. An
// error about an option matches ErrInvalid. NewGuard never changes the
// database, and the guard never closes it.
func NewGuard(ctx context.Context, db Pool, opts ...Option) (*Guard, error) {
	c := config{prefix: vendor.DefaultPrefix}
	for _, o := range opts {
		o(&c)
	}
	if err := vendor.CheckPrefix(c.prefix); err != nil {
		return nil, invalid("%w", err)
	}
	name, err := vendor.Detect(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("fencing: %w", err)
	}
	table := vendor.FenceTable(c.prefix)
	if err := start(ctx, db, table, "RESOURCE", "TOKEN"); err != nil {
		return nil, fmt.Errorf("fencing: table %s: %w; create it with schema.Apply, or run the script schema/%s.sql", table, err, name)
	}
	g := &Guard{check{db: db, args: func(resource any, token int64) []any { return []any{resource, token, token} }}}
	g.check.write, g.check.look = guardTexts(name)
	g.check.write = fill(name, g.check.write, "{table}", table)
	g.check.look = fill(name, g.check.look, "{table}", table)
	return g, nil
}

// guardTexts gives the statements that write a token and look at it.
//
// On MySQL and MariaDB no UPDATE may come before the INSERT: it would leave
// the gap of a new resource locked, and two first writers would deadlock.
//
// MySQL has no RETURNING. LAST_INSERT_ID(expr) would carry the token in the
// same answer, but it would also be what the caller's own LAST_INSERT_ID()
// gives afterwards: a token in place of the key of the row it just inserted.
// The second statement locks because a plain read would go by a snapshot that
// may be older than the row.
func guardTexts(name string) (write, look string) {
	const duplicate = "INSERT INTO {table} (RESOURCE, TOKEN) VALUES (?, {token}) ON DUPLICATE KEY UPDATE TOKEN = {greatest}(TOKEN, {token})"
	switch name {
	case vendor.MySQL:
		return duplicate, "SELECT TOKEN FROM {table} WHERE RESOURCE = ? FOR UPDATE"
	case vendor.MariaDB:
		return duplicate + " RETURNING TOKEN", ""
	}
	return "INSERT INTO {table} AS f (RESOURCE, TOKEN) VALUES (?, {token}) " +
		"ON CONFLICT (RESOURCE) DO UPDATE SET TOKEN = {greatest}(f.TOKEN, {token}) RETURNING TOKEN", ""
}

// Check lets a transaction go on only if no higher token has been presented
// for the resource. Until tx ends, everybody else who checks the resource
// waits; the highest token becomes the one presented if tx commits, and stays
// what it was if it rolls back. An equal token passes: one holder may write
// many times.
//
// Call it first in tx. For the refusal the order does not matter, but what tx
// has read before Check may be older than the previous holder's last write.
//
// resource is any name of 1 to 255 characters of UTF-8 without NUL and without
// a blank at either end; upper and lower case differ. A new name begins with
// the first token presented for it. Always guard one resource by tokens of one
// lock key in one region: the tokens of different keys cannot be compared.
//
// A lower token returns a [*StaleTokenError], which matches ErrStaleToken, and
// writes nothing; roll back. A bad name, or a token below 1 (the holder has
// none), matches ErrInvalid. Everything else is the database's error, wrapped:
// a deadlock, a serialization failure or a busy database passes if the whole
// transaction is run again.
func (g *Guard) Check(ctx context.Context, tx Tx, resource string, token int64) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	return g.check.run(ctx, tx, resource, token)
}

// Advance is Check in a transaction of its own. Call it right after the lock
// was acquired: when it returns nil, every write of an earlier holder is
// either committed or will be refused. Without it an earlier holder passes
// until the new one's first Check commits.
//
// Advance waits for a transaction of an earlier holder that is still open, at
// most until ctx ends or the database's lock timeout. Errors are those of
// Check; ErrStaleToken means that the lock is lost already.
func (g *Guard) Advance(ctx context.Context, resource string, token int64) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	return g.check.advance(ctx, resource, token)
}

// maxResource is the size of the RESOURCE column in characters.
const maxResource = 255

// checkResource refuses names that a database cannot keep apart from others:
// blanks at the end do not count in the collations of MySQL and MariaDB, and a
// database that cuts silently would make two resources one.
func checkResource(name string) error {
	switch {
	case name == "", strings.HasPrefix(name, " "), strings.HasSuffix(name, " "),
		strings.ContainsRune(name, 0), !utf8.ValidString(name), utf8.RuneCountInString(name) > maxResource:
		return invalid("resource %s: want 1 to %d characters of UTF-8, no NUL, no blank at either end", quote(name), maxResource)
	}
	return nil
}
