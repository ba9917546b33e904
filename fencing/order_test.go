package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// blocked fails if an answer is there before it may be. It gives the other
// side time to do wrong; if the machine is too slow for that, nothing fails.
func blocked(t *testing.T, answer <-chan error) {
	t.Helper()
	select {
	case err := <-answer:
		t.Fatalf("the second did not wait for the first: %v", err)
	case <-time.After(60 * time.Millisecond):
	}
}

func answerOf(t *testing.T, answer <-chan error) error {
	t.Helper()
	select {
	case err := <-answer:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the second waits for ever")
		return nil
	}
}

// TestTwoAtOnce: an old and a new holder in open transactions, in both orders
// of arrival, on a resource that is new or has been seen. The second waits;
// what it is told depends on how the first ended.
func TestTwoAtOnce(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		mark := db.LogMark(t)
		for _, c := range []struct {
			name          string
			first, second int64
			seen          int64 // the highest before
			commit        bool  // the first
			stale         bool  // the second
		}{
			{"old then new", 7, 8, 6, true, false},
			{"old then new, old rolls back", 7, 8, 6, false, false},
			{"old repeats its token, then new", 7, 8, 7, true, false},
			{"new then old", 8, 7, 6, true, true},
			{"new then old, new rolls back", 8, 7, 6, false, false},
			{"new repeats its token, then old", 8, 7, 8, true, true},
			{"old then new, new resource", 7, 8, 0, true, false},
			{"new then old, new resource", 8, 7, 0, true, true},
			{"new then old, new resource, new rolls back", 8, 7, 0, false, false},
			{"one holder in two transactions", 7, 7, 6, true, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				exec(t, db, "DELETE FROM INT_LOCK_FENCE")
				exec(t, db, "UPDATE account SET fence = NULL, balance = 0")
				if c.seen > 0 {
					if err := g.advance(t.Context(), 1, c.seen); err != nil {
						t.Fatal(err)
					}
				}
				first := begin(t, db, sql.LevelDefault)
				if err := g.check(t.Context(), first, 1, c.first); err != nil {
					t.Fatal(err)
				}
				answer := make(chan error, 1)
				go func() {
					_, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error {
						if err := g.check(t.Context(), tx, 1, c.second); err != nil {
							return err
						}
						_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 10 WHERE id = 2")
						return err
					})
					answer <- err
				}()
				// A refusal that was certain before the first came need not wait for it.
				if !(c.stale && c.seen > c.second) {
					blocked(t, answer)
				}
				exec(t, first, "UPDATE account SET balance = balance + 1 WHERE id = 2")
				end := first.Rollback
				if c.commit {
					end = first.Commit
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				highest, balance := c.second, int64(10)
				err := answerOf(t, answer)
				if c.stale {
					mustBeStale(t, "the second", err, g.name(1), c.second, c.first)
					highest, balance = c.first, 0
				} else if err != nil {
					t.Errorf("the second: %v", err)
				}
				if c.commit {
					balance++
				}
				if got := g.highest(t, 1); got != highest {
					t.Errorf("the highest is %d, want %d", got, highest)
				}
				if got := number(t, db, "SELECT balance FROM account WHERE id = 2"); got != balance {
					t.Errorf("the balance is %d, want %d", got, balance)
				}
			})
		}
		silent(t, mark)
	})
}

// TestAdvanceWaitsForOpenWrites: when Advance has returned, the writes of the
// old holder are committed and visible. If its context ends first, it says so.
func TestAdvanceWaitsForOpenWrites(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		old := begin(t, db, sql.LevelDefault)
		if err := g.check(t.Context(), old, 1, 7); err != nil {
			t.Fatal(err)
		}
		exec(t, old, "UPDATE account SET balance = balance + 1 WHERE id = 2")

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err := g.advance(ctx, 1, 8)
		if err == nil || errors.Is(err, fencing.ErrStaleToken) || ctx.Err() == nil {
			t.Errorf("Advance with an open transaction in its way: %v, want an error once its context has ended", err)
		}

		answer := make(chan error, 1)
		go func() { answer <- g.advance(t.Context(), 1, 8) }()
		blocked(t, answer)
		if err := old.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := answerOf(t, answer); err != nil {
			t.Fatal(err)
		}
		if got := number(t, db, "SELECT balance FROM account WHERE id = 2"); got != 1 {
			t.Errorf("after Advance the balance is %d, want 1", got)
		}
	})
}

// TestOtherResourcesDoNotWait, except on SQLite, which has one writer.
func TestOtherResourcesDoNotWait(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		if db.Vendor == vendor.SQLite {
			t.Skip("SQLite has one writer at a time")
		}
		first := begin(t, db, sql.LevelDefault)
		if err := g.check(t.Context(), first, 1, 7); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := g.advance(ctx, 2, 7); err != nil {
			t.Errorf("another resource: %v", err)
		}
	})
}

// TestFirstWriters: many at once on a resource that nobody has seen.
func TestFirstWriters(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		mark := db.LogMark(t)
		const writers = 8
		for resource := 1; resource <= 3; resource++ {
			var wg sync.WaitGroup
			for token := int64(1); token <= writers; token++ {
				wg.Go(func() {
					tries, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error {
						return g.check(t.Context(), tx, resource, token)
					})
					if err != nil && (token == writers || !errors.Is(err, fencing.ErrStaleToken)) || tries != 1 {
						t.Errorf("token %d, try %d: %v", token, tries, err)
					}
				})
			}
			wg.Wait()
			if got := g.highest(t, resource); got != writers {
				t.Errorf("the highest is %d, want %d", got, writers)
			}
		}
		silent(t, mark)
	})
}

// TestFirstWriterRollsBack: two wait for the first of all writers, and it
// rolls back. InnoDB may make one of the two a deadlock's victim; run again,
// it passes or is refused.
func TestFirstWriterRollsBack(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		first := begin(t, db, sql.LevelDefault)
		if err := g.check(t.Context(), first, 1, 1); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for token := int64(2); token <= 3; token++ {
			wg.Go(func() {
				tries, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(tx *sql.Tx) error {
					return g.check(t.Context(), tx, 1, token)
				})
				if err != nil && (token == 3 || !errors.Is(err, fencing.ErrStaleToken)) {
					t.Errorf("token %d: %v", token, err)
				}
				t.Logf("token %d: %d tries, %v", token, tries, err)
			})
		}
		time.Sleep(150 * time.Millisecond) // both wait
		if err := first.Rollback(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := g.highest(t, 1); got != 3 {
			t.Errorf("the highest is %d, want 3", got)
		}
	})
}

// TestHistory: holders that come, write, stay too long and write again, at
// random. What was committed must be in the order of the tokens, and nothing
// of an older holder may follow an Advance.
func TestHistory(t *testing.T) {
	eachGuard(t, func(t *testing.T, db *testdb.DB, g fence) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var granted atomic.Int64
		var mu sync.Mutex
		advanced := map[int64]int64{} // the number of committed writes seen after Advance -> its token
		var stale atomic.Int64
		var wg sync.WaitGroup
		for w := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			wg.Go(func() {
				for range 8 {
					token := granted.Add(1)
					if random.IntN(2) == 0 {
						if _, err := inTx(t.Context(), db.DB, sql.LevelDefault, func(*sql.Tx) error { return g.advance(t.Context(), 1, token) }); err == nil {
							var n int64
							if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(n), 0) FROM history").Scan(&n); err != nil {
								t.Error(err)
							}
							mu.Lock()
							advanced[n] = max(advanced[n], token)
							mu.Unlock()
						}
					}
					for range random.IntN(4) {
						time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
						level, readsFirst, rollsBack := anyLevel(random, db.Vendor), random.IntN(3) == 0, random.IntN(5) == 0
						_, err := inTx(t.Context(), db.DB, level, func(tx *sql.Tx) error {
							if readsFirst {
								var n int64
								if err := tx.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(n), 0) FROM history").Scan(&n); err != nil {
									return err
								}
							}
							if err := g.check(t.Context(), tx, 1, token); err != nil {
								return err
							}
							if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(
								"INSERT INTO history (n, token) SELECT COALESCE(MAX(n), 0) + 1, %d FROM history", token)); err != nil {
								return err
							}
							if rollsBack {
								return errRolledBack
							}
							return nil
						})
						var refused *fencing.StaleTokenError
						switch {
						case errors.As(err, &refused):
							stale.Add(1)
							if refused.Highest <= token || refused.Highest > granted.Load() {
								t.Errorf("refused without a reason: %v", err)
							}
						case err != nil && err != errRolledBack:
							t.Errorf("token %d: %v", token, err)
						}
					}
				}
			})
		}
		wg.Wait()
		rows, err := db.QueryContext(t.Context(), "SELECT n, token FROM history ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var last, least, count int64
		for rows.Next() {
			var n, token int64
			if err := rows.Scan(&n, &token); err != nil {
				t.Fatal(err)
			}
			least = max(least, advanced[n-1])
			if token < last || token < least {
				t.Errorf("write %d has token %d, after token %d was committed and %d advanced", n, token, last, least)
			}
			last = token
			count++
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d writes, %d refused", count, stale.Load())
		if count == 0 {
			t.Error("nothing was written")
		}
	})
}

var errRolledBack = errors.New("the application changed its mind")

func anyLevel(random *rand.Rand, name string) sql.IsolationLevel {
	levels := levelsOf(name)
	return levels[random.IntN(len(levels))]
}
