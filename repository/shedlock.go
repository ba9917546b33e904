package repository

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/intlock/intlock/internal/vendor"
)

// KeyMapper is a LockRepository that keeps keys in a way of its own: a registry on
// it asks it in place of its own mapping.
type KeyMapper interface {
	LockRepository

	// PathFor is what stands for a lock's key in the store and in a Request. Keys
	// that are different have different ones. An error, about a key that cannot be
	// stored, matches ErrInvalid.
	PathFor(key string) (string, error)
}

// ShedLockRepository keeps leases in a table of ShedLock's: name, lock_until,
// locked_at, locked_by. So a job in Go and one in Java (@SchedulerLock, with
// usingDbTime) exclude each other. Rows are never deleted: a lock is free when
// lock_until has come. Times are the database's, in UTC, as there.
//
// A lock's key is its name, of at most 64 characters, as it is. What ShedLock's
// table has no place for does not exist: regions, fencing tokens, readable names,
// custom queries. locked_by names the holder, the client and the attempt, so that
// no two grants have the same one.
//
// It is safe for concurrent use, and a registry on it is like any other.
type ShedLockRepository struct {
	core   *DefaultLockRepository // for errors, and what a server is asked at the start
	table  string
	config config
	closed atomic.Bool

	look, insert, update, renew, remove, endAfter, list *statement
}

var _ KeyMapper = (*ShedLockRepository)(nil)

// WithShedLockTable sets the table of NewShedLock: letters, digits and underscores,
// optionally behind a schema name and a dot. Default: "shedlock".
func WithShedLockTable(name string) Option { return func(c *config) { c.shedlock = name } }

// NewShedLock returns a repository on a table of ShedLock's shape in db. It takes the
// options WithShedLockTable, WithClientID, WithHolder, WithoutPreparedStatements and
// WithoutStartCheck. As New does it asks the server which vendor it is, looks at the
// table unless it is told not to, and changes nothing; schema.ApplyShedLock makes
// the table. Errors match ErrInvalid and ErrTable.
//
// On MySQL and MariaDB the columns need milliseconds, as ShedLock says:
// TIMESTAMP(3). SQLite, which ShedLock does not know, keeps Unix milliseconds.
func NewShedLock(ctx context.Context, db Pool, opts ...Option) (*ShedLockRepository, error) {
	c := newConfig(opts)
	if c.shedlock == "" {
		c.shedlock = "shedlock"
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if !shedlockTable.MatchString(c.shedlock) {
		return nil, invalid("table %s: want letters, digits and underscores, optionally behind a schema name and a dot", quote(c.shedlock))
	}
	if c.tokens || c.notify || c.asyncRelease || c.insertQuery != "" || c.updateQuery != "" || c.renewQuery != "" || c.spring6 != 0 {
		return nil, invalid("a ShedLock table has no tokens, no notifications, no custom queries and one layout")
	}
	if db == nil || reflect.ValueOf(db).Kind() == reflect.Pointer && reflect.ValueOf(db).IsNil() {
		return nil, invalid("the database is nil")
	}
	r := &ShedLockRepository{core: &DefaultLockRepository{db: &store{Pool: db}, config: c, table: c.shedlock}, table: c.shedlock, config: c}
	name, err := vendor.Detect(ctx, db)
	if err != nil {
		return nil, r.core.wrap("start", err)
	}
	r.core.dialect, r.core.db.vendor = dialects()[name], name
	if err := r.compile(); err != nil {
		return nil, err
	}
	r.core.db.plain.Store(c.plain || name == vendor.Postgres && r.core.behindPooler(ctx))
	if err := r.core.checkSetting(ctx); err != nil || !c.startCheck {
		return r, err
	}
	return r, r.check(ctx)
}

var shedlockTable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// The statements. A release says in locked_by that the lease is nobody's any more,
// so that nothing which arrives late finds it.
const (
	shedlockLook     = `SELECT locked_by, {left}, {until} FROM {shedlock} WHERE name = :name`
	shedlockInsert   = `INSERT INTO {shedlock} (name, lock_until, locked_at, locked_by) VALUES (:name, {end}, {now}, :mine)`
	shedlockUpdate   = `UPDATE {shedlock} SET lock_until = {end}, locked_at = {now}, locked_by = :mine WHERE name = :name AND lock_until <= {now}`
	shedlockRenew    = `UPDATE {shedlock} SET lock_until = {max}(lock_until, {end}) WHERE name = :name AND locked_by = :mine AND lock_until > {now}`
	shedlockRemove   = `UPDATE {shedlock} SET lock_until = {now}, locked_by = :ended WHERE name = :name AND locked_by = :mine`
	shedlockEndAfter = `UPDATE {shedlock} SET lock_until = {end}, locked_by = :ended WHERE name = :name AND locked_by = :mine`
	shedlockList     = `SELECT name, locked_by, {left}, {until} FROM {shedlock} ORDER BY name`
)

func (r *ShedLockRepository) compile() error {
	d := r.core.dialect
	ignore := " ON CONFLICT (name) DO NOTHING"
	if d.vendor == vendor.MySQL || d.vendor == vendor.MariaDB {
		// ShedLock's own precision. Rounded to it, the end of a lease could come
		// earlier than was asked for by less than a millisecond.
		d.clock, d.end, ignore = "UTC_TIMESTAMP(3)", "{now} + INTERVAL (:ttl + 1000) MICROSECOND", ""
	}
	var errs []error
	build := func(op, text string, required ...string) *statement {
		text = strings.NewReplacer("{shedlock}", r.table, "{max}", d.max,
			"{left}", strings.ReplaceAll(d.left, "{expires}", "lock_until"),
			"{until}", strings.ReplaceAll(d.left, "{expires}", "locked_at")).Replace(text)
		s, err := newStatement(op, d.fill(text, config{}), false, d.bindType, 0, required...)
		errs = append(errs, err)
		return s
	}
	r.look = build("look", shedlockLook, "name")
	r.insert = build("acquire", shedlockInsert+ignore, "name", "ttl", "mine")
	r.update = build("acquire", shedlockUpdate, "name", "ttl", "mine")
	r.renew = build("renew", shedlockRenew, "name", "ttl", "mine")
	r.remove = build("delete", shedlockRemove, "name", "mine", "ended")
	r.endAfter = build("endAfter", shedlockEndAfter, "name", "ttl", "mine", "ended")
	r.list = build("list", shedlockList)
	return errors.Join(errs...)
}

// check looks whether the table is there, and on MySQL and MariaDB whether its
// columns keep milliseconds: without them leases would end up to a second early.
func (r *ShedLockRepository) check(ctx context.Context) error {
	rows, err := r.core.db.QueryContext(ctx, "SELECT name, lock_until, locked_at, locked_by FROM "+r.table+" WHERE 1 = 0")
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if err != nil {
		return r.wrap("start check", err)
	}
	if v := r.core.dialect.vendor; v != vendor.MySQL && v != vendor.MariaDB {
		return nil
	}
	schema, table, found := strings.Cut(r.table, ".")
	where := "'" + schema + "'"
	if !found {
		where, table = "DATABASE()", r.table
	}
	coarse := 0
	if err := r.core.ask(ctx, `SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = `+where+` AND TABLE_NAME = '`+table+`'
AND COLUMN_NAME IN ('lock_until', 'locked_at') AND DATETIME_PRECISION < 3`, &coarse); err != nil {
		return err
	}
	if coarse > 0 {
		return fmt.Errorf("%w: the times in %s have no milliseconds; run: ALTER TABLE %s MODIFY lock_until TIMESTAMP(3) NOT NULL, MODIFY locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", ErrTable, r.table, r.table)
	}
	return nil
}

// wrap classifies an error of the database.
func (r *ShedLockRepository) wrap(op string, err error) error {
	err = r.core.wrap(op, err)
	if e, ok := err.(*opError); ok && e.kind == ErrTable {
		e.hint = "create it with schema.ApplyShedLock, or with the script of ShedLock's documentation"
	}
	return err
}

// fail is wrap for a prepared statement, see DefaultLockRepository.
func (r *ShedLockRepository) fail(s *statement, err error) error {
	if err != nil && lostStatement(err) && !r.core.db.plain.Swap(true) {
		for _, s := range r.statements() {
			s.forget()
		}
	}
	if err != nil && outdatedStatement(err) {
		s.forget()
	}
	return r.wrap(s.op, err)
}

func (r *ShedLockRepository) statements() []*statement {
	return []*statement{r.look, r.insert, r.update, r.renew, r.remove, r.endAfter, r.list}
}

// IsAcquired implements LockRepository.
func (r *ShedLockRepository) IsAcquired(ctx context.Context, key string) (bool, error) {
	info, found, err := r.Get(ctx, key)
	return found && info.ClientID == r.config.clientID && info.Held(), err
}

// Get implements LockRepository.
func (r *ShedLockRepository) Get(ctx context.Context, key string) (info LockInfo, found bool, err error) {
	if err := r.ready(key); err != nil {
		return LockInfo{}, false, err
	}
	w, found, err := r.row(ctx, key)
	if err != nil || !found {
		return LockInfo{}, false, err
	}
	return w.info(), true, nil
}

// List implements LockRepository.
func (r *ShedLockRepository) List(ctx context.Context) ([]LockInfo, error) {
	if err := r.ready("all"); err != nil {
		return nil, err
	}
	infos := []LockInfo{}
	var w shedlockRow
	_, err := r.list.each(ctx, r.core.db, values{}, func() { infos = append(infos, w.info()) }, &w.name, &w.by, &w.left, &w.made)
	if err != nil {
		return nil, r.fail(r.list, err)
	}
	return infos, nil
}

// DeleteExpired implements LockRepository. It deletes nothing: ShedLock keeps its
// rows.
func (r *ShedLockRepository) DeleteExpired(_ context.Context, after string) (deleted int64, next string, err error) {
	if after == "" {
		after = "all"
	}
	return 0, "", r.ready(after)
}

// ClientID implements LockRepository.
func (r *ShedLockRepository) ClientID() string { return r.config.clientID }

// Vendor and Table say where the leases are, see DefaultLockRepository.
func (r *ShedLockRepository) Vendor() string { return r.core.dialect.vendor }
func (r *ShedLockRepository) Table() string  { return r.table }

func (r *ShedLockRepository) String() string {
	return fmt.Sprintf("%s on %s, client %s", r.table, r.core.dialect.vendor, r.config.clientID)
}

// Close implements LockRepository.
func (r *ShedLockRepository) Close() error {
	r.closed.Store(true)
	var errs []error
	for _, s := range r.statements() {
		errs = append(errs, s.forget())
	}
	return errors.Join(errs...)
}
