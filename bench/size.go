package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// tableSize measures a lock in tables of different sizes, and what others notice
// while expired rows are deleted.
func tableSize(ctx context.Context, s settings, r *report) error {
	sizes := []int{10, min(10_000, s.rows), s.rows}
	for _, vendor := range []string{"postgres", "mariadb", "mysql", "sqlite"} {
		group := pick(kinds(vendor), durable)
		if len(group) == 0 {
			continue
		}
		db, err := openDB(vendor)
		if err != nil {
			return err
		}
		l, err := group[0].open(ctx)
		if err != nil {
			return err
		}
		locks := l.(intlocks)
		for _, rows := range sizes {
			if err := fillTable(ctx, db, vendor, rows, 0); err != nil {
				return fmt.Errorf("%s: fill: %w", vendor, err)
			}
			result := sizeResult{Vendor: vendor, Rows: rows}
			var all series
			for range s.rounds {
				one, err := oneRound(ctx, l, 1, s.time)
				if err != nil {
					return err
				}
				all.add(one)
			}
			result.P50 = all.p50()
			if rows == s.rows {
				for _, expired := range []int{0, 1000, rows * 3 / 10} {
					stall, err := measurePurge(ctx, db, locks, vendor, rows, expired)
					if err != nil {
						return fmt.Errorf("%s: %w", vendor, err)
					}
					result.Stalls = append(result.Stalls, stall)
				}
			}
			r.sizes = append(r.sizes, result)
		}
		if _, err := db.ExecContext(ctx, emptyTable(vendor)); err != nil {
			return err
		}
		closeAll(ctx, l)
	}
	return nil
}

type sizeResult struct {
	Vendor string
	Rows   int
	P50    time.Duration
	Stalls []stall
}

// stall is what a client noticed of a DeleteExpired.
type stall struct {
	Expired           int
	Deleted           int64
	Took              time.Duration
	Longest, P99, P50 time.Duration // of the client's cycles meanwhile
	Alone, AloneP50   time.Duration // the longest one before, in three seconds, and the median
}

func measurePurge(ctx context.Context, db *sql.DB, locks intlocks, vendor string, rows, expired int) (stall, error) {
	if err := fillTable(ctx, db, vendor, rows, expired); err != nil {
		return stall{}, err
	}
	result := stall{Expired: expired}
	longest := func(until <-chan struct{}) (took []time.Duration) {
		for {
			select {
			case <-until:
				slices.Sort(took)
				return took
			default:
			}
			begin := time.Now()
			unlock, err := locks.lock(ctx, "beside")
			if err == nil {
				err = unlock()
			}
			if err == nil {
				took = append(took, time.Since(begin))
			}
		}
	}
	before := make(chan struct{})
	time.AfterFunc(3*time.Second, func() { close(before) })
	alone := longest(before)
	done := make(chan error, 1)
	until := make(chan struct{})
	go func() {
		begin := time.Now()
		var err error
		result.Deleted, err = locks.DeleteExpired(ctx)
		result.Took = time.Since(begin)
		close(until)
		done <- err
	}()
	beside := longest(until)
	if err := <-done; err != nil {
		return result, err
	}
	result.Alone, result.AloneP50 = alone[len(alone)-1], alone[len(alone)/2]
	if len(beside) > 0 {
		result.Longest, result.P99, result.P50 = beside[len(beside)-1], beside[len(beside)*99/100], beside[len(beside)/2]
	}
	return result, nil
}

// emptyTable: after a DELETE of a million rows InnoDB would be busy with what is left
// of them while others are measured.
func emptyTable(vendor string) string {
	if vendor == "sqlite" { // where this is as good
		return "DELETE FROM INT_LOCK"
	}
	return "TRUNCATE TABLE INT_LOCK"
}

// fillTable leaves so many rows in the region of the locks, the first of which
// have expired.
func fillTable(ctx context.Context, db *sql.DB, vendor string, rows, expired int) error {
	past, future := "TIMESTAMP '2001-01-01 00:00:00'", "TIMESTAMP '2099-01-01 00:00:00'"
	series := fmt.Sprintf("generate_series(0, %d) AS s (n)", rows-1)
	key := "md5(CAST(n AS text))"
	switch vendor {
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
		emptyTable(vendor),
		fmt.Sprintf("INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT) SELECT %s, 'DEFAULT', 'filler', %s, CASE WHEN n < %d THEN %s ELSE %s END, 1 FROM %s", key, past, expired, past, future, series),
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if vendor == "postgres" {
		_, err := db.ExecContext(ctx, "VACUUM ANALYZE INT_LOCK")
		return err
	}
	return nil
}
