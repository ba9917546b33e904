package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// level is one way of isolating transactions.
type level struct {
	name      string
	isolation sql.IsolationLevel
	snapshot  bool // what a transaction reads is as old as its first read
	strict    bool // and it may lock no row that was written since
}

var innodbLevels = []level{
	{"read uncommitted", sql.LevelReadUncommitted, false, false},
	{"read committed", sql.LevelReadCommitted, false, false},
	{"repeatable read", sql.LevelRepeatableRead, true, false},
	{"serializable", sql.LevelSerializable, false, false}, // reads lock and are of now
}

var levels = map[string][]level{
	vendor.Postgres: {
		{"read committed", sql.LevelReadCommitted, false, false},
		{"repeatable read", sql.LevelRepeatableRead, true, true},
		{"serializable", sql.LevelSerializable, true, true},
	},
	vendor.MySQL:   innodbLevels,
	vendor.MariaDB: append(innodbLevels, level{"innodb_snapshot_isolation", sql.LevelRepeatableRead, true, true}),
	vendor.SQLite:  {{"default", sql.LevelDefault, true, true}},
}

func eachLevel(t *testing.T, f func(t *testing.T, db *testdb.DB, repo *repository.DefaultLockRepository, l level)) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		repo := newRepository(t, db.DB)
		for _, l := range levels[db.Vendor] {
			t.Run(l.name, func(t *testing.T) {
				exec(t, db.DB, "DELETE FROM INT_LOCK")
				used := db
				if l.name == "innodb_snapshot_isolation" {
					used = db.With(t, map[string]string{l.name: "1"})
				}
				f(t, used, repo, l)
			})
		}
	})
}

// TestAssertOldSnapshot: a transaction has read something, then the row changes,
// then it asserts. It is never told that a lease stands that does not; nor that
// one stands whose grant its snapshot does not show, as the data that it has
// read may be its predecessor's to change; nor that one is gone which stands.
func TestAssertOldSnapshot(t *testing.T) {
	eachLevel(t, func(t *testing.T, db *testdb.DB, repo *repository.DefaultLockRepository, l level) {
		remove := func(lease repository.Lease) {
			if ok, err := repo.Delete(t.Context(), lease); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		for _, c := range []struct {
			name   string
			before bool                                          // the lease is granted before the transaction reads
			change func(lease repository.Lease) repository.Lease // after it has read
			want   repository.LeaseState
			unsure bool // an error that asks for another run will do
		}{
			{"nothing", true, func(lease repository.Lease) repository.Lease { return lease }, repository.LeaseStands, false},
			{"granted", false, func(repository.Lease) repository.Lease { return grant(t, repo, "k") }, repository.LeaseStands, l.snapshot},
			{"renewed", true, func(lease repository.Lease) repository.Lease {
				if got, err := repo.Renew(t.Context(), []repository.Lease{lease}, time.Hour); err != nil || got[0].State != repository.LeaseStands {
					t.Fatal(got, err)
				}
				return lease
			}, repository.LeaseStands, l.strict},
			{"deleted", true, func(lease repository.Lease) repository.Lease { remove(lease); return lease }, repository.LeaseDeleted, l.strict},
			{"taken", true, func(lease repository.Lease) repository.Lease { remove(lease); grant(t, repo, "k"); return lease }, repository.LeaseTaken, l.strict},
		} {
			exec(t, db.DB, "DELETE FROM INT_LOCK")
			var lease repository.Lease
			if c.before {
				lease = grant(t, repo, "k")
			}
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: l.isolation})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			var n int
			if err := tx.QueryRow("SELECT COUNT(*) FROM INT_LOCK_FENCE").Scan(&n); err != nil {
				t.Fatal(err)
			}
			lease = c.change(lease)
			got, err := repo.AssertHeld(t.Context(), tx, lease)
			t.Logf("%s since the snapshot: %v, %v", c.name, got.State, err)
			switch {
			case c.unsure && (err == nil || !errors.Is(err, repository.ErrTransient)):
				t.Errorf("%s: %v, %v, want an error that asks for another run", c.name, got.State, err)
			case !c.unsure && (err != nil || got.State != c.want):
				t.Errorf("%s: %v, %v, want %v", c.name, got.State, err, c.want)
			}
			tx.Rollback()
		}
	})
}

// TestAssertTogether: many transactions of one lease, renewals and contenders
// at once. They wait for each other and never deadlock; where a snapshot can be
// too old, running again helps.
func TestAssertTogether(t *testing.T) {
	eachLevel(t, func(t *testing.T, db *testdb.DB, repo *repository.DefaultLockRepository, l level) {
		mark := db.LogMark(t)
		lease := grant(t, repo, "k")
		var workers, others sync.WaitGroup
		working, done := context.WithCancel(t.Context())
		for range 2 {
			others.Go(func() {
				for working.Err() == nil {
					if out, err := repo.Acquire(t.Context(), aRequest("k")); err != nil && !errors.Is(err, repository.ErrTransient) || out.Acquired {
						t.Errorf("a contender: %+v, %v", out, err)
					}
					if got, err := repo.Renew(t.Context(), []repository.Lease{lease}, time.Minute); err == nil && got[0].State > repository.LeaseBusy || err != nil && !errors.Is(err, repository.ErrTransient) {
						t.Errorf("a renewal: %v, %v", got, err)
					}
				}
			})
		}
		for range 3 {
			workers.Go(func() {
				for range 50 {
					for again := true; again; {
						err := assertAndCommit(t.Context(), db, repo, lease, l)
						again = l.strict && errors.Is(err, repository.ErrTransient)
						if err != nil && !again {
							t.Error(err)
						}
					}
				}
			})
		}
		workers.Wait()
		done()
		others.Wait()
		for _, line := range mark.NewErrors(t) {
			if !l.strict {
				t.Errorf("the server's log has: %s", line)
			}
		}
	})
}

func assertAndCommit(ctx context.Context, db *testdb.DB, repo *repository.DefaultLockRepository, lease repository.Lease, l level) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: l.isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	got, err := repo.AssertHeld(ctx, tx, lease)
	if err == nil && got.State != repository.LeaseStands {
		err = fmt.Errorf("the lease is %v", got.State)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// TestRenewPassesAsserted: a transaction that has asserted one lease delays the
// renewal of the others neither on the servers, nor for ever on SQLite, which
// has one writer: there all of them wait for it, as long as their context
// allows, and stay what they were.
func TestRenewPassesAsserted(t *testing.T) {
	eachLevel(t, func(t *testing.T, db *testdb.DB, repo *repository.DefaultLockRepository, l level) {
		leases := []repository.Lease{grant(t, repo, "a"), grant(t, repo, "k"), grant(t, repo, "z")}
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: l.isolation})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if got, err := repo.AssertHeld(t.Context(), tx, leases[1]); err != nil || got.State != repository.LeaseStands {
			t.Fatal(got, err)
		}
		limit := 10 * time.Second // to wait for the row would take longer on every server
		if db.Vendor == vendor.SQLite {
			limit = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		got, err := repo.Renew(ctx, leases, time.Hour)
		want := []repository.LeaseState{repository.LeaseStands, repository.LeaseBusy, repository.LeaseStands}
		if db.Vendor == vendor.SQLite {
			if !errors.Is(err, repository.ErrTransient) {
				t.Errorf("%v, %v, want ErrTransient while somebody writes", got, err)
			}
			want[1] = repository.LeaseStands
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			got, err = repo.Renew(t.Context(), leases, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i].State != want[i] {
				t.Errorf("lease %d: %v, want %v", i, got[i].State, want[i])
			}
		}
	})
}
