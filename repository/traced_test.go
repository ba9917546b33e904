package repository_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/repository"
)

// traced opens the database through a driver that hides the real one, as
// tracing and metrics wrappers do: other types, no optional interfaces but the
// ones with contexts, and every error wrapped.
func traced(t *testing.T, db *testdb.DB) repository.Pool {
	return tracedBefore(t, db, nil)
}

// tracedBefore is traced, and calls before with each statement that is about to be
// executed and answers with no rows.
func tracedBefore(t *testing.T, db *testdb.DB, before func(query string)) repository.Pool {
	pool := sql.OpenDB(tracedConnector{db, before})
	t.Cleanup(func() { pool.Close() })
	return pool
}

type tracedConnector struct {
	db     *testdb.DB
	before func(query string) // or nil
}

func (c tracedConnector) Driver() driver.Driver { return c.db.DB.Driver() }

func (c tracedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.db.DB.Driver().Open(c.db.DSN)
	if err != nil {
		return nil, spanError(err)
	}
	return tracedConn{conn, c.before}, nil
}

func spanError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("span ended: %w", err)
}

type tracedConn struct {
	driver.Conn
	before func(query string)
}

func (c tracedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, spanError(err)
	}
	return tracedStmt{stmt, query, c.before}, nil
}

type tracedStmt struct {
	driver.Stmt
	query  string
	before func(query string)
}

func (s tracedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.before != nil {
		s.before(s.query)
	}
	result, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	return result, spanError(err)
}

func (s tracedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return rows, spanError(err)
}
