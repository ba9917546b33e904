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
	pool := sql.OpenDB(tracedConnector{db})
	t.Cleanup(func() { pool.Close() })
	return pool
}

type tracedConnector struct{ db *testdb.DB }

func (c tracedConnector) Driver() driver.Driver { return c.db.DB.Driver() }

func (c tracedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.db.DB.Driver().Open(c.db.DSN)
	if err != nil {
		return nil, spanError(err)
	}
	return tracedConn{conn}, nil
}

func spanError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("span ended: %w", err)
}

type tracedConn struct{ driver.Conn }

func (c tracedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, spanError(err)
	}
	return tracedStmt{stmt}, nil
}

type tracedStmt struct{ driver.Stmt }

func (s tracedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	return result, spanError(err)
}

func (s tracedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return rows, spanError(err)
}
