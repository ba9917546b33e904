package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// DB is what the functions need of a database. *sql.DB, *sqlx.DB, *sql.Conn
// and *sql.Tx have it.
type DB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// DefaultPrefix is Spring's, and what repository.New uses: the table is INT_LOCK.
const DefaultPrefix = vendor.DefaultPrefix

// Apply creates the lock table if there is none. It is idempotent, and
// harmless when several processes do it at the same time.
//
// A table that exists is checked as [Check] does and never changed: one that
// fits is a success, even for a user who may not create tables, and one that
// does not fit is a [*MismatchError].
//
// MySQL and MariaDB commit a transaction that is open on the same connection
// when they create a table, so db should not be a *sql.Tx there.
func Apply(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "apply", prefix, func(t target) error {
		// Look first. On Postgres CREATE TABLE IF NOT EXISTS looks only into
		// the first schema of the search_path: with the table in a later one
		// it would make a second table, which hides the first from us but not
		// from services with another search_path.
		err := t.check(ctx, db)
		if !errors.Is(err, ErrMissing) {
			return err
		}
		if failed := t.create(ctx, db); failed != nil {
			// Somebody may have been faster in a way that IF NOT EXISTS does
			// not cover. If the table is there now, nothing is wrong.
			if err := t.check(ctx, db); err == nil || errors.Is(err, ErrMismatch) {
				return err
			}
			return failed
		}
		// IF NOT EXISTS is content with any table, or even a view.
		return t.check(ctx, db)
	})
}

// Check tells whether the lock table fits. It only reads, and needs no right
// to any row.
//
// It returns nil, an error that matches [ErrMissing] if there is no such
// table, a [*MismatchError] (which matches [ErrMismatch]) if the table does
// not fit, or the error of the database if it could not be asked.
func Check(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "check", prefix, func(t target) error { return t.check(ctx, db) })
}

// Drop removes the lock table and with it every lock. No table is a success.
// Something of that name that has no LOCK_KEY and REGION, or is no table, is
// left alone and reported as a [*MismatchError]: a wrong prefix should not
// cost somebody else's table.
func Drop(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "drop", prefix, func(t target) error {
		found, err := t.dialect.read(ctx, db, t.name)
		switch {
		case errors.Is(err, ErrMissing):
			return nil
		case err != nil:
			return err
		}
		if problems := notOurs(found, t.dialect); len(problems) > 0 {
			return &MismatchError{Table: t.name.sql, Problems: problems}
		}
		return execAll(ctx, db, statements(t.script(drops)))
	})
}

// target is the lock table of one call.
type target struct {
	dialect dialect
	prefix  string
	name    tableName
}

func (t target) script(k scriptKind) string { return render(t.dialect.vendor(), t.prefix, k) }

func (t target) check(ctx context.Context, db DB) error {
	found, err := t.dialect.read(ctx, db, t.name)
	if err != nil {
		return err
	}
	if problems := compare(found, t.dialect); len(problems) > 0 {
		return &MismatchError{Table: t.name.sql, Problems: problems}
	}
	return nil
}

func (t target) create(ctx context.Context, db DB) error {
	all := statements(t.script(creates))
	if t.dialect.vendor() == vendor.Postgres {
		all = []string{serialised(all)}
	}
	return execAll(ctx, db, all)
}

// execAll runs one statement per call: go-sql-driver/mysql and pgx refuse
// several.
func execAll(ctx context.Context, db DB, all []string) error {
	for _, statement := range all {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// run does what the three operations have in common. A MismatchError and
// ErrMissing name the table themselves and are returned as they are.
func run(ctx context.Context, db DB, op, prefix string, step func(target) error) error {
	// Before anything is sent: a bad prefix must not reach a server.
	if err := vendor.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("schema: %s: %w", op, err)
	}
	t := target{prefix: prefix, name: nameOf(prefix)}
	err := retryBusy(ctx, func() error {
		name, err := vendor.Detect(ctx, db)
		if err != nil {
			return err
		}
		t.dialect = dialects[name]
		return step(t)
	})
	if err == nil || errors.Is(err, ErrMissing) || errors.Is(err, ErrMismatch) {
		return err
	}
	return fmt.Errorf("schema: %s table %s: %w", op, t.name.sql, err)
}

// busyLimit is how long SQLite may answer "busy" before the caller hears of
// it. Creating a table takes milliseconds, so whoever blocks us for longer is
// not another Apply.
const (
	busyLimit = 2 * time.Second
	busyPause = 10 * time.Millisecond
)

// retryBusy repeats step while SQLite is busy. The other databases make a
// statement wait; SQLite does so only with a busy_timeout, which a caller need
// not have set, and not in every case even then.
func retryBusy(ctx context.Context, step func() error) error {
	start := time.Now()
	var busy error
	for {
		err := step()
		if err == nil {
			return nil
		}
		isBusy := isBusy(err)
		if isBusy {
			busy = err
		}
		if busy != nil && ctx.Err() != nil { // say what used up the time
			return fmt.Errorf("%w: %w", ctx.Err(), busy)
		}
		if !isBusy || time.Since(start) > busyLimit {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(busyPause):
		}
	}
}
