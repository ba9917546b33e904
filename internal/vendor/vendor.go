// Package vendor is what repository, schema and fencing must agree on and
// nothing else: the names of the supported databases, how to ask a server which
// one it is, which table prefixes are safe to put into SQL text, and what of an
// error is safe to show.
package vendor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The supported databases. MySQL and MariaDB are two: they differ in
// RETURNING, in sequences and in the names of their settings.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	MariaDB  = "mariadb"
	SQLite   = "sqlite"
)

// All lists the supported databases in the order the documentation uses.
func All() []string { return []string{Postgres, MySQL, MariaDB, SQLite} }

// DefaultPrefix is Spring's: the table is INT_LOCK.
const DefaultPrefix = "INT_"

// Querier is the part of *sql.DB that Detect needs.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Detect asks the server what it is. The driver is not consulted: a wrapped
// driver has any name, and one driver serves both MySQL and MariaDB.
func Detect(ctx context.Context, db Querier) (string, error) {
	// version() first: it exists everywhere but on SQLite, so that no server
	// writes an error into its log because it was asked.
	text, err := queryText(ctx, db, "SELECT version()")
	if err != nil {
		lite, liteErr := queryText(ctx, db, "SELECT sqlite_version()")
		if liteErr != nil {
			// The first connection is where a DSN is parsed, and quoted if it
			// does not parse.
			return "", scrubbed{fmt.Errorf("ask the server for its version: %w", err)}
		}
		return SQLite, checkSQLite(lite)
	}
	return parse(text)
}

func queryText(ctx context.Context, db Querier, query string) (string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var text string
	if rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return "", err
		}
	}
	return text, errors.Join(rows.Err(), rows.Close())
}

func parse(version string) (string, error) {
	lower := strings.ToLower(version)
	var major, minor int
	switch {
	case strings.Contains(lower, "cockroach"):
		return "", unsupported(version)
	case strings.HasPrefix(lower, "postgresql"):
		return Postgres, nil
	case strings.Contains(lower, "mariadb"):
		// Some packages put a compatibility number in front: 5.5.5-10.11.2-MariaDB.
		fmt.Sscanf(strings.TrimPrefix(lower, "5.5.5-"), "%d.%d", &major, &minor)
		if major < 10 || major == 10 && minor < 6 {
			return "", tooOld("MariaDB", version, "10.6")
		}
		return MariaDB, nil
	case strings.Contains(lower, "tidb"):
		return "", unsupported(version)
	}
	if n, _ := fmt.Sscanf(lower, "%d.%d", &major, &minor); n != 2 {
		return "", unsupported(version)
	}
	if major < 8 {
		return "", tooOld("MySQL", version, "8.0")
	}
	return MySQL, nil
}

func checkSQLite(version string) error {
	var major, minor int
	fmt.Sscanf(version, "%d.%d", &major, &minor)
	if major < 3 || major == 3 && minor < 42 {
		return tooOld("SQLite", version, "3.42")
	}
	return nil
}

func unsupported(version string) error {
	return fmt.Errorf("the server calls itself %q, which is none of %s", version, strings.Join(All(), ", "))
}

func tooOld(name, version, need string) error {
	return fmt.Errorf("%s %s is too old: %s or newer is needed", name, version, need)
}

// A prefix becomes part of SQL text, so only plain identifiers pass: letters,
// digits and underscores, optionally behind a schema name and a dot. With
// "LOCK_TOKEN" or "LOCK_FENCE_PK" appended the name stays under 63 bytes, where
// Postgres would cut it silently and two prefixes could become one table.
var prefixPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,30}\.)?[A-Za-z_][A-Za-z0-9_]{0,40}$`)

// CheckPrefix refuses a prefix that is not safe to put into SQL text.
func CheckPrefix(prefix string) error {
	if !prefixPattern.MatchString(prefix) {
		shown := prefix
		if len(shown) > 80 {
			shown = shown[:80] + "..."
		}
		return fmt.Errorf("prefix %q: want letters, digits and underscores, at most 41, optionally after a schema name and a dot, such as %q or %q",
			shown, DefaultPrefix, "app."+DefaultPrefix)
	}
	return nil
}

// Table is the lock table's name under a prefix.
func Table(prefix string) string { return prefix + "LOCK" }

// TokenSource is the name of what fencing tokens are drawn from: a sequence on
// Postgres and MariaDB, a table on MySQL and SQLite.
func TokenSource(prefix string) string { return Table(prefix) + "_TOKEN" }

// FenceTable is the name of the table that keeps the highest token of each
// resource.
func FenceTable(prefix string) string { return Table(prefix) + "_FENCE" }

// What a release and those who wait for it have to agree on, on PostgreSQL: the
// channel that LOCK_KEYs are sent through, and the advisory locks that say who
// waits. A key's bucket is the first byte of its MD5, modulo WaitBuckets. There
// are no more of them than a session may have locks (max_locks_per_transaction),
// however many keys it waits for.
const (
	WaitChannel = "intlock"
	WaitClass   = 1768846444 // "intl"
	WaitBuckets = 64
)
