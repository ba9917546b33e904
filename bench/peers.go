package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schema"
)

// locker is what all have in common.
type locker interface {
	lock(ctx context.Context, key string) (unlock func() error, err error)
}

// kind is a way to lock, on a database. open is called in each process that uses
// it; the tables are there.
type kind struct {
	name, vendor string
	open         func(ctx context.Context) (locker, error)
}

type opener = func(context.Context) (locker, error)

const connections = 32

// prepare makes the tables that a vendor's kinds need.
func prepare(ctx context.Context, vendor string) error {
	db, err := openDB(vendor)
	if err != nil {
		return err
	}
	defer db.Close()
	return schema.Apply(ctx, db, "INT_")
}

// clocks are what the SQL of the peers needs of a vendor.
var clocks = map[string]struct{ now, end, expired string }{
	"postgres": {"(statement_timestamp() AT TIME ZONE 'UTC')", "(statement_timestamp() AT TIME ZONE 'UTC') + interval '10 seconds'", "EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC')"},
	"mysql":    {"UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6) + INTERVAL 10 SECOND", "EXPIRED_AFTER < UTC_TIMESTAMP(6)"},
	"mariadb":  {"UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6) + INTERVAL 10 SECOND", "EXPIRED_AFTER < UTC_TIMESTAMP(6)"},
	"sqlite":   {"CAST(unixepoch('subsec') * 1000 AS INTEGER)", "CAST(unixepoch('subsec') * 1000 AS INTEGER) + 10000", "EXPIRED_AFTER < CAST(unixepoch('subsec') * 1000 AS INTEGER)"},
}

// probe is the least that a lease in a table costs: one guarded upsert and one
// DELETE, prepared, without a registry, a holder's name, renewal or anything.
type probe struct {
	acquire, release *sql.Stmt
	client           string
	vendor           string
}

func openProbe(vendor string) func(context.Context) (locker, error) {
	return func(ctx context.Context) (locker, error) {
		db, err := openDB(vendor)
		if err != nil {
			return nil, err
		}
		c := clocks[vendor]
		acquire := `INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER)
SELECT CAST($1 AS bpchar), 'PROBE', CAST($2 AS bpchar), ` + c.now + `, ` + c.end + `
WHERE NOT EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = 'PROBE' AND CLIENT_ID <> CAST($2 AS bpchar) AND NOT ` + c.expired + `)
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE SET CLIENT_ID = EXCLUDED.CLIENT_ID, EXPIRED_AFTER = EXCLUDED.EXPIRED_AFTER
WHERE l.CLIENT_ID = EXCLUDED.CLIENT_ID OR l.` + c.expired
		release := "DELETE FROM INT_LOCK WHERE LOCK_KEY = $1 AND REGION = 'PROBE' AND CLIENT_ID = $2"
		switch vendor {
		case "sqlite":
			acquire = `INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER)
VALUES (?, 'PROBE', ?, ` + c.now + `, ` + c.end + `)
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE SET CLIENT_ID = excluded.CLIENT_ID, EXPIRED_AFTER = excluded.EXPIRED_AFTER
WHERE CLIENT_ID = excluded.CLIENT_ID OR ` + c.expired
		case "mysql", "mariadb":
			acquire = `INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER)
VALUES (?, 'PROBE', ?, ` + c.now + `, ` + c.end + `)
ON DUPLICATE KEY UPDATE CLIENT_ID = IF(` + c.expired + `, VALUES(CLIENT_ID), CLIENT_ID),
EXPIRED_AFTER = IF(CLIENT_ID = VALUES(CLIENT_ID), VALUES(EXPIRED_AFTER), EXPIRED_AFTER)`
		}
		if vendor != "postgres" {
			release = strings.NewReplacer("$1", "?", "$2", "?").Replace(release)
		}
		p := &probe{client: rand.Text(), vendor: vendor}
		if p.acquire, err = db.PrepareContext(ctx, acquire); err != nil {
			return nil, err
		}
		p.release, err = db.PrepareContext(ctx, release)
		return p, err
	}
}

// lock waits for nobody: a probe has keys of its own.
func (p *probe) lock(ctx context.Context, key string) (func() error, error) {
	for {
		result, err := p.acquire.ExecContext(ctx, registry.PathFor(key), p.client)
		if err != nil {
			if p.vendor == "sqlite" && strings.Contains(err.Error(), "locked") {
				continue
			}
			return nil, err
		}
		if n, _ := result.RowsAffected(); n == 0 {
			return nil, errors.New("the probe's key is held")
		}
		break
	}
	return func() error {
		for {
			_, err := p.release.ExecContext(context.Background(), registry.PathFor(key), p.client)
			if p.vendor == "sqlite" && err != nil && strings.Contains(err.Error(), "locked") {
				continue
			}
			return err
		}
	}, nil
}

// queue lets one goroutine of a process at a key, first come first served, as
// Spring's local lock does.
type queue struct {
	mu   sync.Mutex
	keys map[string]chan struct{}
}

func (q *queue) enter(ctx context.Context, key string) (leave func(), err error) {
	q.mu.Lock()
	if q.keys == nil {
		q.keys = make(map[string]chan struct{})
	}
	c := q.keys[key]
	if c == nil {
		c = make(chan struct{}, 1)
		q.keys[key] = c
	}
	q.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// spring is Spring's algorithm: a transaction of UPDATE, then INSERT; DELETE in
// another; a look every 100 ms, one contender per process.
type spring struct {
	queue
	db                     *sql.DB
	vendor, client         string
	update, insert, remove string
	prepared               [3]*sql.Stmt // nil: as the driver does it
}

func openSpring(vendor string, prepared bool) func(context.Context) (locker, error) {
	return func(ctx context.Context) (locker, error) {
		db, err := openDB(vendor)
		if err != nil {
			return nil, err
		}
		c := clocks[vendor]
		s := &spring{db: db, vendor: vendor, client: rand.Text(),
			update: "UPDATE INT_LOCK SET CLIENT_ID = ?, CREATED_DATE = " + c.now + ", EXPIRED_AFTER = " + c.end + " WHERE LOCK_KEY = ? AND REGION = 'SPRING' AND (CLIENT_ID = ? OR " + c.expired + ")",
			insert: "INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER) VALUES (?, 'SPRING', ?, " + c.now + ", " + c.end + ")",
			remove: "DELETE FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = 'SPRING' AND CLIENT_ID = ?",
		}
		switch vendor {
		case "postgres":
			s.insert += " ON CONFLICT DO NOTHING"
			for _, text := range []*string{&s.update, &s.insert, &s.remove} {
				for n := 1; strings.Contains(*text, "?"); n++ {
					*text = strings.Replace(*text, "?", fmt.Sprint("$", n), 1)
				}
			}
		case "sqlite":
			s.insert = strings.Replace(s.insert, "INSERT", "INSERT OR IGNORE", 1)
		default:
			s.insert = strings.Replace(s.insert, "INSERT", "INSERT IGNORE", 1)
		}
		if prepared {
			for i, text := range []string{s.update, s.insert, s.remove} {
				if s.prepared[i], err = db.PrepareContext(ctx, text); err != nil {
					return nil, err
				}
			}
		}
		return s, nil
	}
}

func (s *spring) exec(ctx context.Context, tx *sql.Tx, i int, args ...any) (int64, error) {
	var result sql.Result
	var err error
	if stmt := s.prepared[i]; stmt != nil {
		result, err = tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	} else {
		result, err = tx.ExecContext(ctx, [3]string{s.update, s.insert, s.remove}[i], args...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s *spring) try(ctx context.Context, path string) (bool, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelDefault})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	n, err := s.exec(ctx, tx, 0, s.client, path, s.client)
	if err == nil && n == 0 {
		n, err = s.exec(ctx, tx, 1, path, s.client)
	}
	if err != nil {
		return false, err
	}
	return n > 0, tx.Commit()
}

func (s *spring) lock(ctx context.Context, key string) (func() error, error) {
	path := registry.PathFor(key)
	leave, err := s.enter(ctx, path)
	if err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		ok, err := s.try(ctx, path)
		if err != nil && (ctx.Err() != nil || time.Since(begin) > 20*time.Second) {
			leave()
			return nil, err
		}
		if ok && err == nil {
			break
		}
		if err != nil { // a deadlock, a busy file: Spring tries again too
			time.Sleep(time.Millisecond)
			continue
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return func() error {
		defer leave()
		for begin := time.Now(); ; {
			tx, err := s.db.Begin()
			if err == nil {
				if _, err = s.exec(context.Background(), tx, 2, path, s.client); err == nil {
					err = tx.Commit()
				} else {
					tx.Rollback()
				}
			}
			if err == nil || time.Since(begin) > 20*time.Second { // a deadlock, a busy file
				return err
			}
		}
	}, nil
}

// advisory is a lock of the session, on a connection of its own while it is
// held, and while it is waited for.
// In front of it one goroutine of a process at a time, as for all others here.
type advisory struct {
	queue
	db *sql.DB
}

func openAdvisory(ctx context.Context) (locker, error) {
	db, err := openDB("postgres")
	if err == nil {
		db.SetMaxOpenConns(80) // one for each that holds or waits
		db.SetMaxIdleConns(80)
	}
	return &advisory{db: db}, err
}

func (a *advisory) lock(ctx context.Context, key string) (func() error, error) {
	leave, err := a.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	conn, err := a.db.Conn(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(hashtext('"+key+"'))"); err != nil {
		conn.Close()
		leave()
		return nil, err
	}
	return func() error {
		defer leave()
		_, err := conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock(hashtext('"+key+"'))")
		return errors.Join(err, conn.Close())
	}, nil
}

// getLock is the same on MySQL and MariaDB.
type getLock struct{ db *sql.DB }

func openGetLock(vendor string) func(context.Context) (locker, error) {
	return func(context.Context) (locker, error) {
		db, err := openDB(vendor)
		if err == nil {
			db.SetMaxOpenConns(80)
			db.SetMaxIdleConns(80)
		}
		return getLock{db}, err
	}
}

func (g getLock) lock(ctx context.Context, key string) (func() error, error) {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "DO GET_LOCK('"+key+"', 60)"); err != nil {
		conn.Close()
		return nil, err
	}
	return func() error {
		_, err := conn.ExecContext(context.Background(), "DO RELEASE_LOCK('"+key+"')")
		return errors.Join(err, conn.Close())
	}, nil
}

type pglocks struct{ client *pglock.Client }

func openPglock(lease time.Duration) func(context.Context) (locker, error) {
	return func(ctx context.Context) (locker, error) {
		db, err := openDB("postgres")
		if err != nil {
			return nil, err
		}
		client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/4))
		if err != nil {
			return nil, err
		}
		if err := client.TryCreateTable(); err != nil && !strings.Contains(err.Error(), "exist") {
			return nil, err
		}
		return pglocks{client}, nil
	}
}

func (p pglocks) lock(ctx context.Context, key string) (func() error, error) {
	l, err := p.client.AcquireContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.Close, nil
}

type redlocks struct{ sync *redsync.Redsync }

func openRedsync(env string) func(context.Context) (locker, error) {
	return func(context.Context) (locker, error) {
		client := redis.NewClient(&redis.Options{Addr: os.Getenv(env), PoolSize: connections})
		return redlocks{redsync.New(goredis.NewPool(client))}, nil
	}
}

func (r redlocks) lock(ctx context.Context, key string) (func() error, error) {
	m := r.sync.NewMutex(key, redsync.WithTries(100_000))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := m.Unlock()
		return err
	}, nil
}
