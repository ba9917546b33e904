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

// Apply creates what is missing: the lock table, the token source, the fence
// table. A database with the lock table of an older release gets the other two.
// It is idempotent, and harmless when several processes do it at the same time.
//
// What exists is checked as [Check] does and never changed: if all of it is
// there and fits, that is a success, even for a user who may not create tables.
// If something does not fit, Apply creates nothing and returns a
// [*MismatchError].
//
// MySQL and MariaDB commit a transaction that is open on the same connection
// when they create a table, so db should not be a *sql.Tx there.
func Apply(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "apply", prefix, func(t target) error {
		// Look first. On Postgres CREATE TABLE IF NOT EXISTS looks only into
		// the first schema of the search_path: with the table in a later one
		// it would make a second table, which hides the first from us but not
		// from services with another search_path.
		s, err := t.look(ctx, db)
		if err != nil {
			return err
		}
		if s.unfit() || len(s.missing()) == 0 {
			return s.mismatch()
		}
		failed := t.create(ctx, db, s.missing())
		s, err = t.look(ctx, db)
		switch {
		// Somebody may have been faster in a way that IF NOT EXISTS does not
		// cover. If all is there now, nothing is wrong.
		case failed != nil && (err != nil || len(s.missing()) > 0):
			return failed
		case err != nil:
			return err
		}
		// IF NOT EXISTS is content with anything of the name, or even a view.
		return s.mismatch()
	})
}

// Check tells whether the lock table, the token source and the fence table
// fit. It only reads. It needs no right to any row, with one exception: on
// MariaDB the right to SELECT from the sequence, without which no token can be
// drawn either. MySQL and MariaDB hide a table from a user who has no right to
// it at all; to Check it is missing then.
//
// It returns nil, an error that matches [ErrMissing] if there is no lock
// table, a [*MismatchError] (which matches [ErrMismatch]) if something does not
// fit or only one of the other two is missing, or the error of the database if
// it could not be asked.
func Check(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "check", prefix, func(t target) error {
		s, err := t.look(ctx, db)
		switch {
		case err != nil:
			return err
		case s.noLock != nil:
			return s.noLock
		}
		return s.mismatch()
	})
}

// Drop removes the lock table and with it every lock, the token source, and
// the fence table. Tokens then start over at 1: what has seen one, such as a
// column of your own that remembers the highest, must be reset as well.
//
// Nothing to remove is a success. If one of the names belongs to something
// else, such as a view, or a table without the columns that it must have at
// the very least, Drop removes nothing and returns a [*MismatchError]: a wrong
// prefix should not cost somebody else's table.
func Drop(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "drop", prefix, func(t target) error {
		s, err := t.look(ctx, db)
		if err != nil || s.first() == nil {
			return err
		}
		if err := s.foreign(); err != nil {
			return err
		}
		return execAll(ctx, db, statements(render(t.dialect.vendor(), t.parts[lockPart].name, drops)))
	})
}

// ApplyNotify runs NotifyScript on db, which must be PostgreSQL and have the lock
// table. It needs the right to create functions and to own the table.
func ApplyNotify(ctx context.Context, db DB, prefix string) error {
	return run(ctx, db, "apply the trigger of", prefix, func(t target) error {
		if name := t.dialect.vendor(); name != vendor.Postgres {
			return fmt.Errorf("%s has no NOTIFY; see the packages below wakeup for what it has", name)
		}
		return t.create(ctx, db, statements(render(vendor.Postgres, t.parts[lockPart].name, notifies)))
	})
}

// target is what one call is about.
type target struct {
	dialect dialect
	parts   [partCount]part
}

func (t target) create(ctx context.Context, db DB, all []string) error {
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
// ErrMissing name the tables themselves and are returned as they are.
func run(ctx context.Context, db DB, op, prefix string, step func(target) error) error {
	// Before anything is sent: a bad prefix must not reach a server.
	if err := vendor.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("schema: %s: %w", op, err)
	}
	err := retryBusy(ctx, func() error {
		name, err := vendor.Detect(ctx, db)
		if err != nil {
			return err
		}
		d := dialects[name]
		return step(target{dialect: d, parts: parts(d, prefix)})
	})
	if err == nil || errors.Is(err, ErrMissing) || errors.Is(err, ErrMismatch) {
		return err
	}
	return fmt.Errorf("schema: %s table %s: %w", op, vendor.Table(prefix), err)
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
