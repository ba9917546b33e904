package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MemoryTable stands in for a database: a table of leases that several
// MemoryLockRepository values share, each with a client id of its own. The
// zero value is an empty table. It is safe for concurrent use.
type MemoryTable struct {
	mu      sync.Mutex // guards the fields below; never held while waiting
	regions map[string]memoryRegion
	token   int64 // the last number drawn; outlives the rows
}

// memoryRegion is the rows of a region, by key.
type memoryRegion map[string]memoryRow

// region returns the rows of a region, which stay the same map.
func (t *MemoryTable) region(name string) memoryRegion {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.regions == nil {
		t.regions = make(map[string]memoryRegion)
	}
	if t.regions[name] == nil {
		t.regions[name] = make(memoryRegion)
	}
	return t.regions[name]
}

type memoryRow struct {
	clientID, holder, name string
	attempt                int64
	made, expires          time.Time
}

func (row memoryRow) info(key string, now time.Time) LockInfo {
	return LockInfo{Key: key, Name: row.name, ClientID: row.clientID, Holder: row.holder,
		Age: now.Sub(row.made), Remaining: row.expires.Sub(now)}
}

// MemoryLockRepository is LockRepository without a database: the executable
// model of the contract. Use it in tests (it works inside a testing/synctest
// bubble), in examples, and where one process is all there is. Its clock is
// the process's. It takes the options that make sense without SQL: WithRegion,
// WithClientID, WithHolder and WithTokens.
type MemoryLockRepository struct {
	table  *MemoryTable
	rows   memoryRegion // guarded by table.mu
	config config
	closed atomic.Bool
}

var _ BatchRepository = (*MemoryLockRepository)(nil)

// NewMemory returns a repository on table, or on a table of its own if table
// is nil. Errors about options match ErrInvalid.
func NewMemory(table *MemoryTable, opts ...Option) (*MemoryLockRepository, error) {
	c := newConfig(opts)
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.insertQuery != "" || c.updateQuery != "" || c.renewQuery != "" || c.spring6 != 0 {
		return nil, invalid("custom queries and table layouts have no meaning in memory")
	}
	if table == nil {
		table = new(MemoryTable)
	}
	return &MemoryLockRepository{table: table, rows: table.region(c.region), config: c}, nil
}

// Immediate implements Immediate.
func (m *MemoryLockRepository) Immediate() {}

// ClientID implements LockRepository.
func (m *MemoryLockRepository) ClientID() string { return m.config.clientID }

func (m *MemoryLockRepository) String() string {
	return fmt.Sprintf("memory, region %s, client %s", m.config.region, m.config.clientID)
}

// begin checks what every operation checks and locks the table; the caller
// unlocks. A context that has ended is an error that may pass, as on a database.
func (m *MemoryLockRepository) begin(ctx context.Context, checks ...error) error {
	if err := errors.Join(checks...); err != nil {
		return err
	}
	if m.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, m)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrTransient, ErrNotExecuted, err)
	}
	m.table.mu.Lock()
	return nil
}

// owns reports whether row is the lease of this client's attempt, live or not.
func (m *MemoryLockRepository) owns(row memoryRow, attempt int64) bool {
	return row.clientID == m.config.clientID && row.attempt == attempt
}

// live reports whether the row's lease stands: at its very end it still does.
func (row memoryRow) live(now time.Time) bool { return !row.expires.Before(now) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Acquire implements LockRepository.
func (m *MemoryLockRepository) Acquire(ctx context.Context, req Request) (Outcome, error) {
	if err := m.begin(ctx, checkRequest(req)); err != nil {
		return Outcome{}, err
	}
	defer m.table.mu.Unlock()
	return m.acquire(req, time.Now()), nil
}

// AcquireBatch implements BatchRepository. It takes any number at once.
func (m *MemoryLockRepository) AcquireBatch(ctx context.Context, reqs []Request) ([]Answer[Outcome], error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.table.mu.Unlock()
	now := time.Now()
	answers := make([]Answer[Outcome], len(reqs))
	for i, req := range reqs {
		if answers[i].Err = checkRequest(req); answers[i].Err == nil {
			answers[i].Value = m.acquire(req, now)
		}
	}
	return answers, nil
}

// acquire takes a key. The caller holds the table.
func (m *MemoryLockRepository) acquire(req Request, now time.Time) Outcome {
	row, found := m.rows[req.Key]
	if found && row.live(now) && !m.owns(row, req.Attempt) {
		return Outcome{ClientID: row.clientID, Holder: row.holder, Remaining: row.expires.Sub(now)}
	}
	if !found {
		row.made = now
	}
	m.rows[req.Key] = memoryRow{
		clientID: m.config.clientID, holder: m.config.holder, name: cleanName(req.Name),
		attempt: req.Attempt, made: row.made, expires: later(row.expires, now.Add(req.TTL)),
	}
	out := Outcome{Acquired: true}
	if m.config.tokens {
		m.table.token++
		out.Token = m.table.token * TokenStep
	}
	return out
}

// Renew implements LockRepository.
func (m *MemoryLockRepository) Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]LeaseStatus, error) {
	if err := m.begin(ctx, checkLeases(leases), checkTTL(ttl)); err != nil {
		return nil, err
	}
	defer m.table.mu.Unlock()
	now := time.Now()
	answers := make([]LeaseStatus, len(leases))
	for i, lease := range leases {
		row, found := m.rows[lease.Key]
		switch {
		case !found:
			answers[i].State = LeaseDeleted
		case !m.owns(row, lease.Attempt):
			answers[i] = LeaseStatus{State: LeaseTaken, ClientID: row.clientID, Holder: row.holder}
		case !row.live(now):
			answers[i].State = LeaseExpired
		default:
			row.expires = later(row.expires, now.Add(ttl))
			m.rows[lease.Key] = row
			answers[i] = LeaseStatus{State: LeaseStands, Remaining: row.expires.Sub(now)}
		}
	}
	return answers, nil
}

// Delete implements LockRepository.
func (m *MemoryLockRepository) Delete(ctx context.Context, lease Lease) (bool, error) {
	if err := m.begin(ctx, CheckKey(lease.Key)); err != nil {
		return false, err
	}
	defer m.table.mu.Unlock()
	return m.remove(lease), nil
}

// DeleteBatch implements BatchRepository. It takes any number at once.
func (m *MemoryLockRepository) DeleteBatch(ctx context.Context, leases []Lease) ([]Answer[bool], error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.table.mu.Unlock()
	answers := make([]Answer[bool], len(leases))
	for i, lease := range leases {
		if answers[i].Err = CheckKey(lease.Key); answers[i].Err == nil {
			answers[i].Value = m.remove(lease)
		}
	}
	return answers, nil
}

// remove deletes a row. The caller holds the table.
func (m *MemoryLockRepository) remove(lease Lease) bool {
	row, found := m.rows[lease.Key]
	if !found || !m.owns(row, lease.Attempt) {
		return false
	}
	delete(m.rows, lease.Key)
	return true
}

// EndAfter implements LockRepository.
func (m *MemoryLockRepository) EndAfter(ctx context.Context, lease Lease, d time.Duration) (bool, error) {
	if err := m.begin(ctx, CheckKey(lease.Key), checkTTL(d)); err != nil {
		return false, err
	}
	defer m.table.mu.Unlock()
	row, found := m.rows[lease.Key]
	if !found || !m.owns(row, lease.Attempt) {
		return false, nil
	}
	row.expires, row.attempt = time.Now().Add(d), -row.attempt
	m.rows[lease.Key] = row
	return true, nil
}

// IsAcquired implements LockRepository.
func (m *MemoryLockRepository) IsAcquired(ctx context.Context, key string) (bool, error) {
	if err := m.begin(ctx, CheckKey(key)); err != nil {
		return false, err
	}
	defer m.table.mu.Unlock()
	row, found := m.rows[key]
	return found && row.clientID == m.config.clientID && row.live(time.Now()), nil
}

// DeleteExpired implements LockRepository. It does it all in one step.
func (m *MemoryLockRepository) DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error) {
	if after != "" {
		err = CheckKey(after)
	}
	if err := m.begin(ctx, err); err != nil {
		return 0, "", err
	}
	defer m.table.mu.Unlock()
	now := time.Now()
	for key, row := range m.rows {
		if key > after && !row.live(now) {
			delete(m.rows, key)
			deleted++
		}
	}
	return deleted, "", nil
}

// Get implements LockRepository.
func (m *MemoryLockRepository) Get(ctx context.Context, key string) (info LockInfo, found bool, err error) {
	if err := m.begin(ctx, CheckKey(key)); err != nil {
		return LockInfo{}, false, err
	}
	defer m.table.mu.Unlock()
	row, found := m.rows[key]
	if !found {
		return LockInfo{}, false, nil
	}
	return row.info(key, time.Now()), true, nil
}

// List implements LockRepository.
func (m *MemoryLockRepository) List(ctx context.Context) ([]LockInfo, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.table.mu.Unlock()
	infos, now := []LockInfo{}, time.Now()
	for key, row := range m.rows {
		infos = append(infos, row.info(key, now))
	}
	slices.SortFunc(infos, func(a, b LockInfo) int { return cmp.Compare(a.Key, b.Key) })
	return infos, nil
}

// Close implements LockRepository. The table and its rows stay.
func (m *MemoryLockRepository) Close() error {
	m.closed.Store(true)
	return nil
}

// Expire ends every lease on key now, as if its time had passed: for tests
// that do not want to wait.
func (t *MemoryTable) Expire(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rows := range t.regions {
		if row, found := rows[key]; found {
			row.expires = time.Now().Add(-time.Nanosecond)
			rows[key] = row
		}
	}
}
