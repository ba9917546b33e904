package repository_test

import (
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// TestAssertInOldTransaction: the clock that counts is that of the statement. By
// the start of the transaction, which is what now() means to Postgres, a lease
// that has ended since would still stand.
func TestAssertInOldTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		repo := newRepository(t, db.DB)
		req := repository.Request{Key: "k", Attempt: repository.NewAttempt(), TTL: 2 * time.Second}
		if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
			t.Fatalf("%+v, %v", out, err)
		}
		granted := time.Now()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var n int
		if err := tx.QueryRow("SELECT COUNT(*) FROM INT_LOCK").Scan(&n); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		time.Sleep(time.Until(granted.Add(req.TTL / 2)))
		status, err := repo.AssertHeld(t.Context(), tx, req.Lease())
		if left := status.Remaining; err != nil || status.State != repository.LeaseStands || left > req.TTL/2+50*time.Millisecond {
			t.Errorf("after half of its time: %+v, %v", status, err)
		}
		time.Sleep(time.Until(granted.Add(req.TTL + 50*time.Millisecond)))
		if status, err := repo.AssertHeld(t.Context(), tx, req.Lease()); err != nil || status.State != repository.LeaseExpired {
			t.Errorf("after its end: %+v, %v; want it expired", status, err)
		}
	})
}
