package repository_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// TestAcquireOfLockedRow: a transaction has locked the row of a lease that has
// expired, as one does that asserted it. The key cannot be had before that
// transaction ends. Postgres answers at once that it is held, and by whom; to
// the others it is a request that did not get through in its time. None of it
// is worth a line in the server's log.
func TestAcquireOfLockedRow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		mark := db.LogMark(t)
		holder, err := repository.New(t.Context(), db.DB, repository.WithHolder("the holder"))
		if err != nil {
			t.Fatal(err)
		}
		lease := grant(t, holder, "k")
		expire(t, db, false, "DEFAULT", "k")
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if status, err := holder.AssertHeld(t.Context(), tx, lease); err != nil || status.State != repository.LeaseExpired {
			t.Fatalf("%+v, %v", status, err)
		}

		other := newRepository(t, db.DB)
		req := repository.Request{Key: "k", Attempt: repository.NewAttempt(), TTL: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		out, err := other.Acquire(ctx, req)
		switch {
		case out.Acquired:
			t.Errorf("the key of a locked row was granted")
		case db.Vendor == vendor.Postgres:
			if err != nil || out.ClientID != holder.ClientID() || out.Holder != "the holder" {
				t.Errorf("%+v, %v; want it held by the holder", out, err)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		case !errors.Is(err, repository.ErrTransient):
			t.Errorf("%+v, %v; want ErrTransient", out, err)
		}

		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			out, err := other.Acquire(t.Context(), req)
			if err == nil && out.Acquired {
				break
			}
			if err != nil && !errors.Is(err, repository.ErrTransient) || time.Since(start) > 10*time.Second {
				t.Fatalf("after the commit: %+v, %v", out, err)
			}
		}
		for _, line := range mark.NewErrors(t) {
			t.Errorf("the server's log has: %s", line)
		}
	})
}
