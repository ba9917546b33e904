package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"

	"github.com/intlock/intlock/registry"
)

// counting has openDB open pools whose connections count round trips.
var counting atomic.Bool

var trips atomic.Int64

// countedConn counts each wait for an answer after something was sent.
type countedConn struct {
	net.Conn
	sent atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	if c.sent.Swap(false) {
		trips.Add(1)
	}
	return c.Conn.Read(b)
}

type countedDialer struct{ net.Dialer }

func (d countedDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d countedDialer) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d countedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn}, nil
}

func init() {
	mysql.RegisterDialContext("counted", func(ctx context.Context, address string) (net.Conn, error) {
		return countedDialer{}.DialContext(ctx, "tcp", address)
	})
}

func openCounted(vendor, dsn string) (*sql.DB, error) {
	if vendor == "postgres" {
		c, err := pq.NewConnector(dsn)
		if err != nil {
			return nil, err
		}
		c.Dialer(countedDialer{})
		return sql.OpenDB(c), nil
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.Net = "counted"
	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// roundTrips counts what locking and unlocking a free key takes.
func roundTrips(ctx context.Context, s settings, r *report) error {
	counting.Store(true)
	defer counting.Store(false)
	for _, vendor := range []string{"postgres", "mariadb", "mysql"} {
		for _, k := range pick(kinds(vendor), theProbe, durable, "Spring's algorithm", "Spring's algorithm, prepared", "pglock 1.16", "GET_LOCK") {
			l, err := k.open(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", k.id(), err)
			}
			const times = 20
			for i := range times + 3 {
				if i == 3 { // statements are prepared, connections there
					time.Sleep(50 * time.Millisecond)
					trips.Store(0)
				}
				unlock, err := l.lock(ctx, fmt.Sprint("trip-", i))
				if err == nil {
					err = unlock()
				}
				if err != nil {
					return fmt.Errorf("%s: %w", k.id(), err)
				}
			}
			r.trips = append(r.trips, tripResult{vendor, k.name, float64(trips.Load()) / times})
			closeAll(ctx, l)
		}
	}
	return nil
}

type tripResult struct {
	Vendor, Kind string
	Trips        float64
}

// losingTry has somebody try a key that another holds, on PostgreSQL.
func losingTry(ctx context.Context, s settings, r *report) error {
	if len(pick(kinds("postgres"), durable)) == 0 {
		return nil
	}
	db, err := openDB("postgres")
	if err != nil {
		return err
	}
	defer db.Close()
	for _, name := range []string{durable, "Spring's algorithm", "Spring's algorithm, prepared"} {
		k := pick(kinds("postgres"), name)[0]
		holder, err := k.open(ctx)
		if err != nil {
			return err
		}
		unlock, err := holder.lock(ctx, "losing")
		if err != nil {
			return err
		}
		loser, err := k.open(ctx)
		if err != nil {
			return err
		}
		try := func() error {
			switch l := loser.(type) {
			case intlocks:
				if _, err := l.Obtain("losing").TryLockContext(ctx); err == nil {
					return fmt.Errorf("it was acquired")
				}
				return nil
			case *spring:
				ok, err := l.try(ctx, registry.PathFor("losing"))
				if ok {
					err = fmt.Errorf("it was acquired")
				}
				return err
			}
			return nil
		}
		for range 20 {
			if err := try(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		state := func() (wal, xid int64, err error) {
			err = db.QueryRowContext(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, txid_snapshot_xmax(txid_current_snapshot())").Scan(&wal, &xid)
			return wal, xid, err
		}
		const times = 500
		var all series
		best := tryResult{Kind: name, WAL: -1}
		for range s.rounds {
			wal, xid, err := state()
			if err != nil {
				return err
			}
			var took []time.Duration
			for range times {
				begin := time.Now()
				if err := try(); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				took = append(took, time.Since(begin))
			}
			all.add(newRound(took, 0))
			wal2, xid2, err := state()
			if err != nil {
				return err
			}
			// The server writes by itself now and then: the least is what tries cost.
			if w := float64(wal2-wal) / times; best.WAL < 0 || w < best.WAL {
				best.WAL, best.XIDs = w, float64(xid2-xid)/times
			}
		}
		best.P50 = all.p50()
		r.tries = append(r.tries, best)
		if err := unlock(); err != nil {
			return err
		}
	}
	closeAll(ctx)
	return nil
}

type tryResult struct {
	Kind      string
	WAL, XIDs float64
	P50       time.Duration
}
