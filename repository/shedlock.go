package repository

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

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

// PathFor implements KeyMapper: a key is the name of the lock.
func (r *ShedLockRepository) PathFor(key string) (string, error) {
	if key == "" || utf8.RuneCountInString(key) > 64 || !utf8.ValidString(key) || strings.ContainsRune(key, 0) || strings.TrimSpace(key) != key {
		return "", invalid("name %s: ShedLock's table takes 1 to 64 characters of UTF-8, without a blank at either end", quote(key))
	}
	return key, nil
}

func (r *ShedLockRepository) ready(key string) error {
	if r.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, r)
	}
	_, err := r.PathFor(key)
	return err
}

// mine is the locked_by of a lease of this client, and ended that of one that was
// given back.
func (r *ShedLockRepository) mine(attempt int64) string {
	return r.config.holder + " [" + r.config.clientID + "/" + strconv.FormatInt(attempt, 36) + "]"
}

func (r *ShedLockRepository) ended() string { return r.config.holderText() }

// lockedBy takes a locked_by apart. That of a Java service is its host's name.
func lockedBy(text string) (clientID, holder string) {
	at := strings.LastIndex(text, " [")
	if at < 0 || !strings.HasSuffix(text, "]") {
		return "", text
	}
	clientID = text[at+2 : len(text)-1]
	if slash := strings.LastIndexByte(clientID, '/'); slash >= 0 {
		clientID = clientID[:slash]
	}
	return clientID, text[:at]
}

// shedlockRow is what a row says.
type shedlockRow struct {
	name, by   string
	left, made int64 // microseconds from now
}

func (w shedlockRow) info() LockInfo {
	left := time.Duration(w.left) * time.Microsecond
	if left == 0 {
		left = -time.Microsecond // free at the very instant
	}
	clientID, holder := lockedBy(w.by)
	return LockInfo{Key: w.name, Name: w.name, ClientID: clientID, Holder: holder, Age: -time.Duration(w.made) * time.Microsecond, Remaining: left}
}

func (r *ShedLockRepository) row(ctx context.Context, name string) (w shedlockRow, found bool, err error) {
	w.name = name
	found, _, err = r.look.query(ctx, r.core.db, values{"name": name}, &w.by, &w.left, &w.made)
	return w, found, r.fail(r.look, err)
}

// Acquire implements LockRepository: a look, and if the name is free one write,
// which alone decides.
func (r *ShedLockRepository) Acquire(ctx context.Context, req Request) (Outcome, error) {
	if err := r.ready(req.Key); err != nil {
		return Outcome{}, err
	}
	if req.Attempt <= 0 {
		return Outcome{}, invalid("attempt %d: want one from NewAttempt", req.Attempt)
	}
	if err := checkTTL(req.TTL); err != nil {
		return Outcome{}, err
	}
	w, found, err := r.row(ctx, req.Key)
	if err != nil {
		return Outcome{}, err
	}
	mine := r.mine(req.Attempt)
	s := r.update
	switch {
	case !found:
		s = r.insert
	case w.left > 0 && w.by == mine: // an earlier request of this attempt got through
		s = r.renew
	case w.left > 0:
		info := w.info()
		return Outcome{ClientID: info.ClientID, Holder: info.Holder, Remaining: info.Remaining}, nil
	}
	changed, err := r.write(ctx, s, values{"name": req.Key, "mine": mine, "ttl": roundUp(req.TTL)})
	if err != nil && s == r.insert && duplicateKey(err) {
		return Outcome{}, nil
	}
	if !changed && err == nil && s == r.renew {
		// It ended meanwhile, or there was nothing to change in it.
		w, found, err = r.row(ctx, req.Key)
		changed = found && w.by == mine && w.left > 0
	}
	return Outcome{Acquired: changed}, err
}

// write executes a statement about one row.
func (r *ShedLockRepository) write(ctx context.Context, s *statement, v values) (changed bool, err error) {
	result, sent, err := s.exec(ctx, r.core.db, v)
	if err != nil {
		return false, r.fail(s, err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 && sent.again() {
		err = errSentAgain
	}
	return n > 0, r.wrap(s.op, err)
}

// Renew implements LockRepository. It takes one lease at a time: a job has one.
func (r *ShedLockRepository) Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]LeaseStatus, error) {
	for _, lease := range leases {
		if err := r.ready(lease.Key); err != nil {
			return nil, err
		}
	}
	if err := checkTTL(ttl); err != nil || len(leases) == 0 {
		return nil, err
	}
	lease, mine := leases[0], r.mine(leases[0].Attempt)
	changed, err := r.write(ctx, r.renew, values{"name": lease.Key, "mine": mine, "ttl": roundUp(ttl)})
	if err != nil {
		return nil, err
	}
	if changed {
		return []LeaseStatus{{State: LeaseStands, Remaining: ttl}}, nil
	}
	w, found, err := r.row(ctx, lease.Key)
	status := LeaseStatus{State: LeaseTaken}
	switch {
	case err != nil:
		return nil, err
	case !found:
		status.State = LeaseDeleted
	case w.by != mine:
		status.ClientID, status.Holder = lockedBy(w.by)
	case w.left <= 0:
		status.State = LeaseExpired
	default: // it lasts longer already
		status = LeaseStatus{State: LeaseStands, Remaining: w.info().Remaining}
	}
	return []LeaseStatus{status}, nil
}

// Delete implements LockRepository: the row stays, and is free.
func (r *ShedLockRepository) Delete(ctx context.Context, lease Lease) (bool, error) {
	if err := r.ready(lease.Key); err != nil {
		return false, err
	}
	return r.write(ctx, r.remove, values{"name": lease.Key, "mine": r.mine(lease.Attempt), "ended": r.ended()})
}

// EndAfter implements LockRepository.
func (r *ShedLockRepository) EndAfter(ctx context.Context, lease Lease, d time.Duration) (bool, error) {
	if err := errors.Join(r.ready(lease.Key), checkTTL(d)); err != nil {
		return false, err
	}
	return r.write(ctx, r.endAfter, values{"name": lease.Key, "mine": r.mine(lease.Attempt), "ended": r.ended(), "ttl": roundUp(d)})
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
