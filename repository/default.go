package repository

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/jmoiron/sqlx"
)

// Pool is what a repository needs of a database. *sql.DB and *sqlx.DB have it,
// whatever their driver and however it is wrapped; a transaction or a single
// connection does not, and must not: a lock that is part of somebody's
// transaction is invisible to everybody else until it ends.
type Pool interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Stats() sql.DBStats
}

// DefaultLockRepository keeps leases in a table of an SQL database. Each
// operation is one statement on one connection, outside any transaction, and
// the connection goes back to the pool with the answer; a pool of one suffices.
// It is safe for concurrent use.
type DefaultLockRepository struct {
	db      *store
	config  config
	table   string
	dialect dialect
	closed  atomic.Bool

	acquire, peek                              *statement // peek: SQLite only
	draw                                       *statement // where acquire cannot draw the token; else nil
	insert, update                             *statement // the path of custom queries
	renew, remove, isAcquired, purgeLook, list *statement // renew: for RenewQuery, and if it is custom
	endAfter, get                              *statement
	forceRelease, forceRenew, regions          *statement // an operator's
	assert                                     *statement // never prepared: it runs in other people's transactions
	renewMany, find                            *batch
	many                                       batchStatements
}

var (
	_ BatchRepository = (*DefaultLockRepository)(nil)
	_ Pool            = (*sqlx.DB)(nil)
)

// New returns a repository on db. It asks the server which vendor it is and,
// unless WithoutStartCheck is given, whether the table has the columns it
// needs and, with WithTokens, whether tokens can be drawn; the error tells what
// to run if not (ErrTable). Errors about options match ErrInvalid. New never
// changes the database and never closes db.
func New(ctx context.Context, db Pool, opts ...Option) (*DefaultLockRepository, error) {
	c := newConfig(opts)
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.shedlock != "" {
		return nil, invalid("WithShedLockTable is for NewShedLock")
	}
	if db == nil || reflect.ValueOf(db).Kind() == reflect.Pointer && reflect.ValueOf(db).IsNil() {
		return nil, invalid("the database is nil")
	}
	r := &DefaultLockRepository{db: &store{Pool: db}, config: c, table: vendor.Table(c.prefix)}
	if err := r.useDialectOfServer(ctx); err != nil {
		return nil, err
	}
	if c.startCheck {
		if err := r.checkTable(ctx); err != nil {
			return nil, err
		}
		if c.tokens {
			if err := r.checkTokens(ctx); err != nil {
				_ = r.Close() // it has prepared a statement
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *DefaultLockRepository) useDialectOfServer(ctx context.Context) error {
	name, err := vendor.Detect(ctx, r.db)
	if err != nil {
		return r.wrap("start", err)
	}
	r.dialect, r.db.vendor = dialects()[name], name
	if err := r.compile(); err != nil {
		return err
	}
	r.db.plain.Store(r.config.plain || name == vendor.Postgres && r.behindPooler(ctx))
	return r.checkSetting(ctx)
}

func (r *DefaultLockRepository) compile() error {
	d, c := r.dialect, r.config
	owner := []string{"lock_key", "region", "client_id", "attempt"}
	lease := append(owner, "ttl")
	var errs []error
	build := func(op, text, custom string, required []string) *statement {
		text = d.fill(text, c)
		if custom != "" {
			text = custom
		}
		s, err := newStatement(op, text, custom != "", d.bindType, 0, required...)
		errs = append(errs, err)
		return s
	}
	acquire := d.acquire
	if c.tokens {
		acquire = cmp.Or(d.acquireToken, d.acquire)
		if d.acquireToken == "" || c.customAcquire() {
			r.draw = build("draw token", d.draw, "", owner)
		}
	}
	r.acquire = build("acquire", acquire, "", lease)
	if d.peek != "" {
		r.peek = build("acquire", d.peek, "", owner)
	}
	r.update = build("update", updateText, c.updateQuery, lease)
	r.insert = build("insert", d.insert, c.insertQuery, lease)
	r.renew = build("renew", d.renew, c.renewQuery, lease)
	remove := deleteText
	if freed := d.freedText(c); freed != "" {
		remove += "\nRETURNING LOCK_KEY" + freed
	}
	r.remove = build("delete", remove, "", owner)
	r.isAcquired = build("isAcquired", isAcquiredText, "", nil)
	r.purgeLook = build("deleteExpired", strings.ReplaceAll(purgeLookText, "{after}", cmp.Or(d.after, ":after")), "", []string{"after"})
	r.list = build("list", listText, "", nil)
	r.get = build("get", getText, "", []string{"lock_key", "region"})
	r.endAfter = build("endAfter", endAfterText, "", lease)
	r.forceRelease = build("release", strings.ReplaceAll(forceReleaseText, "{past}", d.shift(c.spring6+time.Millisecond)), "", append(owner, "holder", "seen_client", "seen_attempt"))
	r.forceRenew = build("renew", forceRenewText, "", []string{"lock_key", "region", "ttl"})
	r.regions = build("regions", regionsText, "", nil)
	r.assert = build("assert", d.assert, "", nil)
	var err error
	r.renewMany, err = r.newBatch("renew", d.renewMany)
	errs = append(errs, err)
	r.find, err = r.newBatch("renew", findText)
	errs = append(errs, err)
	r.many, err = r.newBatchStatements()
	return errors.Join(append(errs, err)...)
}

// Vendor is the database behind the pool: "postgres", "mysql", "mariadb" or
// "sqlite", the names that package schema takes.
func (r *DefaultLockRepository) Vendor() string { return r.dialect.vendor }

// Table, Region and ClientID say which rows are this repository's.
func (r *DefaultLockRepository) Table() string    { return r.table }
func (r *DefaultLockRepository) Region() string   { return r.config.region }
func (r *DefaultLockRepository) ClientID() string { return r.config.clientID }

// InsertQuery, UpdateQuery and RenewQuery return the texts in force: the
// custom ones, else the defaults, which are a starting point for custom ones.
// The default insert and update are what Acquire falls back to when the other
// of the two is custom; without custom queries it does the work of both in one
// statement. The default renew query is about one lease; Renew itself, without
// a custom one, sends a statement about many.
func (r *DefaultLockRepository) InsertQuery() string { return r.insert.text }
func (r *DefaultLockRepository) UpdateQuery() string { return r.update.text }
func (r *DefaultLockRepository) RenewQuery() string  { return r.renew.text }

func (r *DefaultLockRepository) String() string {
	return fmt.Sprintf("%s on %s, region %s, client %s", r.table, r.dialect.vendor, r.config.region, r.config.clientID)
}

// Close implements LockRepository.
func (r *DefaultLockRepository) Close() error {
	r.closed.Store(true)
	var errs []error
	for _, s := range r.statements() {
		errs = append(errs, s.forget())
	}
	return errors.Join(errs...)
}

// statements are those that this vendor has.
func (r *DefaultLockRepository) statements() []*statement {
	all := []*statement{r.peek, r.acquire, r.draw, r.update, r.insert, r.renew, r.remove, r.isAcquired, r.purgeLook, r.list, r.get, r.endAfter, r.forceRelease, r.forceRenew, r.regions, r.assert}
	all = append(all, r.many.all()...)
	all = slices.DeleteFunc(all, func(s *statement) bool { return s == nil })
	return slices.Concat(all, r.renewMany.compiled(), r.find.compiled())
}
