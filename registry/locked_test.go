package registry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
)

// TestRenewOfLockedRow: while somebody's transaction has locked the row, a
// renewal does not get through. That is no loss, and passes with the transaction.
func TestRenewOfLockedRow(t *testing.T) {
	servers(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // each gives up after five seconds
		locks := newRegistry(t, db.DB, registry.WithTTL(time.Minute))
		hold, err := locks.Obtain("k").LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("SELECT 1 FROM INT_LOCK FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		err = hold.Renew(t.Context(), registry.WithTTL(time.Hour))
		if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrLockLost) || !hold.Held() {
			t.Errorf("renewal of a locked row: %v, held %v; want ErrUnavailable and a lease that stands", err, hold.Held())
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(hold.Renew(t.Context()), hold.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
