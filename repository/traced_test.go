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
// tracing and metrics wrappers do: other types, no optional interfaces beyond
// the ones with contexts, and every error wrapped.
func traced(t *testing.T, db *testdb.DB) repository.Pool {
	pool := sql.OpenDB(tracedConnector{db})
	t.Cleanup(func() { pool.Close() })
	return pool
}

type tracedConnector struct{ db *testdb.DB }

func (c tracedConnector) Driver() driver.Driver { return c.db.DB.Driver() }

func (c tracedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.db.DB.Driver().Open(c.db.DSN)
	return tracedConn{conn}, spanError(err)
}

func spanError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("span ended: %w", err)
}

type tracedConn struct{ conn driver.Conn }

func (c tracedConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.conn.Prepare(query)
	if err != nil {
		return nil, spanError(err)
	}
	return tracedStmt{stmt}, nil
}

func (c tracedConn) Close() error              { return spanError(c.conn.Close()) }
func (c tracedConn) Begin() (driver.Tx, error) { return c.conn.Begin() } //nolint // the wrapper is an old one

type tracedStmt struct{ stmt driver.Stmt }

func (s tracedStmt) Close() error  { return s.stmt.Close() }
func (s tracedStmt) NumInput() int { return s.stmt.NumInput() }
func (s tracedStmt) Exec(args []driver.Value) (driver.Result, error) {
	result, err := s.stmt.Exec(args)
	return result, spanError(err)
}
func (s tracedStmt) Query(args []driver.Value) (driver.Rows, error) {
	rows, err := s.stmt.Query(args)
	return rows, spanError(err)
}
