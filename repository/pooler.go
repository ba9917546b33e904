package repository

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// store is the pool, and how statements go to it: prepared, or as texts with
// the values in them. A pooler that gives each transaction another connection to
// the server (pgbouncer in transaction mode) does not know what was prepared on
// which; drivers number their statements, so that even another client's might
// run. A text without parameters is one packet, and nothing is left on the
// connection.
type store struct {
	Pool
	plain  atomic.Bool // texts
	vendor string
}

// connector is what texts need of a pool beside: a connection of its own for
// each. database/sql sends a statement again when a connection breaks, and with
// no arguments nobody could tell; on a connection it does not.
type connector interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// conn returns a connection for one text.
func (s *store) conn(ctx context.Context) (*sql.Conn, error) {
	pool, ok := s.Pool.(connector)
	if !ok {
		return nil, fmt.Errorf("the database (%T) has no method Conn, which is needed where statements cannot be prepared", s.Pool)
	}
	return pool.Conn(ctx)
}

// behindPooler finds out whether a pooler hands transactions to connections as
// it likes: two connections that are open at the same time are then the same one
// of the server, or one is two in turn. It may miss it where the pooler is busy,
// and never reports it of a server. An error tells nothing.
func (r *DefaultLockRepository) behindPooler(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	const query = "SELECT pg_backend_pid()"
	pid := func(rows *sql.Rows) (pid int64) {
		if rows.Next() {
			_ = rows.Scan(&pid)
		}
		return pid
	}
	first, err := r.db.QueryContext(ctx, query)
	if err != nil {
		return false
	}
	defer first.Close()
	one := pid(first)
	single := r.db.Stats().MaxOpenConnections == 1
	if single {
		first.Close()
	}
	second, err := r.db.QueryContext(ctx, query)
	if err != nil {
		return false
	}
	defer second.Close()
	two := pid(second)
	return one != 0 && two != 0 && (one == two) != single
}

// lostStatement: the server does not know what was prepared, or knows it as
// something else: a pooler is in between. Nothing was executed.
func lostStatement(err error) bool {
	switch sqlState(err) {
	case "26000", "42P05":
		return true
	case "08P01":
		return strings.Contains(err.Error(), "bind message supplies")
	}
	return false
}

// literals puts the values into the text.
func (s *statement) literals(v values, name string) (string, error) {
	var out strings.Builder
	rest := s.marked
	for _, parameter := range s.order {
		before, after, _ := strings.Cut(rest, "?")
		out.WriteString(before)
		if err := literal(&out, v[parameter], name); err != nil {
			return "", err
		}
		rest = after
	}
	out.WriteString(rest)
	return out.String(), nil
}

// literal writes a value as SQL. Quotes are doubled everywhere; what a backslash
// means depends on the vendor and its settings, so texts with one are written
// in a way that does not: on PostgreSQL as an E” string, on MySQL and MariaDB as
// their bytes.
func literal(out *strings.Builder, value any, name string) error {
	switch value := value.(type) {
	case int64:
		fmt.Fprint(out, value)
	case string:
		mysql := name == vendor.MySQL || name == vendor.MariaDB
		switch {
		case strings.ContainsRune(value, 0):
			return invalid("a text with a NUL")
		case mysql && strings.ContainsRune(value, '\\'):
			fmt.Fprintf(out, "_utf8mb4 X'%x'", value)
			return nil
		case name == vendor.Postgres && strings.ContainsRune(value, '\\'):
			out.WriteByte('E')
			value = strings.ReplaceAll(value, `\`, `\\`)
		}
		out.WriteByte('\'')
		out.WriteString(strings.ReplaceAll(value, "'", "''"))
		out.WriteByte('\'')
	default:
		return fmt.Errorf("no literal for a %T", value)
	}
	return nil
}
