package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// tableSize measures a lock in tables of different sizes, in turn, and what others
// notice while expired rows of the largest are deleted.
func tableSize(ctx context.Context, s settings, r *report) error {
	for _, vendor := range []string{"postgres", "mariadb", "mysql", "sqlite"} {
		if len(kinds(vendor)) == 0 || os.Getenv("BENCH_"+strings.ToUpper(vendor)) == "" {
			continue
		}
		if err := tableSizeOf(ctx, s, r, vendor); err != nil {
			return fmt.Errorf("%s: %w", vendor, err)
		}
	}
	return nil
}

func tableSizeOf(ctx context.Context, s settings, r *report, vendor string) error {
	db, err := openDB(vendor)
	if err != nil {
		return err
	}
	var tables []sizedTable
	for _, rows := range []int{10, min(10_000, s.rows), s.rows} {
		t := sizedTable{db: db, vendor: vendor, rows: rows, prefix: fmt.Sprintf("SIZE%d_", len(tables))}
		if err := schema.Apply(ctx, db, t.prefix); err != nil {
			return err
		}
		if err := t.fill(ctx, 0); err != nil {
			return err
		}
		l, err := ours(vendor, false, []repository.Option{repository.WithPrefix(t.prefix)})(ctx)
		if err != nil {
			return err
		}
		t.locks = l.(intlocks)
		tables = append(tables, t)
	}
	cycles := make([]series, len(tables))
	for range s.rounds {
		for i, t := range tables {
			one, err := oneRound(ctx, t.locks, 1, s.time)
			if err != nil {
				return err
			}
			cycles[i].add(one)
		}
	}
	for i, t := range tables {
		result := sizeResult{Vendor: vendor, Rows: t.rows, P50: cycles[i].p50()}
		if t.rows == s.rows {
			for _, expired := range []int{0, 1000, s.rows * 3 / 10} {
				stall, err := t.measurePurge(ctx, expired)
				if err != nil {
					return err
				}
				result.Stalls = append(result.Stalls, stall)
			}
		}
		r.sizes = append(r.sizes, result)
	}
	var all []locker
	for _, t := range tables {
		all = append(all, t.locks)
		if err := schema.Drop(ctx, db, t.prefix); err != nil {
			return err
		}
	}
	closeAll(ctx, all...)
	return nil
}

// sizedTable is a lock table of so many rows, and the locks in it.
type sizedTable struct {
	db             *sql.DB
	vendor, prefix string
	rows           int
	locks          intlocks
}

type sizeResult struct {
	Vendor string
	Rows   int
	P50    time.Duration
	Stalls []stall
}

// stall is what a client noticed of a DeleteExpired.
type stall struct {
	Expired   int
	Deleted   int64
	Took      time.Duration
	Meanwhile cycleTimes
	Alone     cycleTimes // directly after it, for as long
}

// cycleTimes are the extremes and the middle of many cycles.
type cycleTimes struct {
	N                 int
	Late              int // that took more than 20 ms
	Longest, P99, P50 time.Duration
}

func (t sizedTable) measurePurge(ctx context.Context, expired int) (stall, error) {
	if err := t.fill(ctx, expired); err != nil {
		return stall{}, err
	}
	result := stall{Expired: expired}
	purged := make(chan error, 1)
	until := make(chan struct{})
	time.AfterFunc(time.Second, func() {
		begin := time.Now()
		var err error
		result.Deleted, err = t.locks.DeleteExpired(ctx)
		result.Took = time.Since(begin)
		close(until)
		purged <- err
	})
	var err error
	if result.Meanwhile, err = t.cyclesUntil(ctx, until); err == nil {
		err = <-purged
	}
	if err != nil {
		return result, err
	}
	alone := make(chan struct{})
	time.AfterFunc(result.Took, func() { close(alone) })
	result.Alone, err = t.cyclesUntil(ctx, alone)
	return result, err
}

// cyclesUntil locks and unlocks one key after the other, all over the table. With a
// single one the registry's pauses for others, who may want it, would be the longest
// cycles.
func (t sizedTable) cyclesUntil(ctx context.Context, until <-chan struct{}) (cycleTimes, error) {
	var took []time.Duration
	for n := 0; ; n++ {
		select {
		case <-until:
			if len(took) == 0 {
				return cycleTimes{}, nil
			}
			slices.Sort(took)
			late, _ := slices.BinarySearch(took, 20*time.Millisecond)
			return cycleTimes{N: len(took), Late: len(took) - late, Longest: took[len(took)-1],
				P99: took[len(took)*99/100], P50: took[len(took)/2]}, nil
		default:
		}
		begin := time.Now()
		unlock, err := t.locks.lock(ctx, fmt.Sprint("beside-", n))
		if err == nil {
			err = unlock()
		}
		if err != nil {
			return cycleTimes{}, err
		}
		took = append(took, time.Since(begin))
	}
}

// emptied empties the table: after a DELETE of a million rows InnoDB would be busy with what is left
// of them while others are measured.
func (t sizedTable) emptied() string {
	if t.vendor == "sqlite" { // where this is as good
		return "DELETE FROM " + t.prefix + "LOCK"
	}
	return "TRUNCATE TABLE " + t.prefix + "LOCK"
}

// fill leaves rows in the region of the locks, the first of which have expired.
func (t sizedTable) fill(ctx context.Context, expired int) error {
	rows := t.rows
	past, future := "TIMESTAMP '2001-01-01 00:00:00'", "TIMESTAMP '2099-01-01 00:00:00'"
	series := fmt.Sprintf("generate_series(0, %d) AS s (n)", rows-1)
	key := "md5(CAST(n AS text))"
	switch t.vendor {
	case "sqlite":
		past, future = "978307200000", "4070908800000"
		series = fmt.Sprintf("(WITH RECURSIVE c (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < %d) SELECT n FROM c) AS s", rows-1)
		key = "printf('%08x-%08x', (n * 2654435761) % 4294967296, n)"
	case "mysql", "mariadb":
		key = "LEFT(SHA2(n, 224), 36)" // MySQL 9 has no MD5
		digits := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
		series = fmt.Sprintf("(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d AS n FROM %s a, %s b, %s c, %s e, %s f, %s g) AS s WHERE n < %d", digits, digits, digits, digits, digits, digits, rows)
	}
	for _, text := range []string{
		t.emptied(),
		fmt.Sprintf("INSERT INTO "+t.prefix+"LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT) SELECT %s, 'DEFAULT', 'filler', %s, CASE WHEN n < %d THEN %s ELSE %s END, 1 FROM %s", key, past, expired, past, future, series),
	} {
		if _, err := t.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if t.vendor == "postgres" {
		_, err := t.db.ExecContext(ctx, "VACUUM ANALYZE "+t.prefix+"LOCK")
		return err
	}
	return nil
}
