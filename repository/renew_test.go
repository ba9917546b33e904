package repository

import (
	"fmt"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// TestRenewPassesLockedRow: a row that somebody's transaction has locked, or is
// about to change, delays neither the renewal of others nor the caller, and the
// answer about it is "ask again". In small tables too, where a database likes
// to read everything.
func TestRenewPassesLockedRow(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		for _, rows := range []int{1, 3, 40, 300, 3000} {
			t.Run(fmt.Sprintf("%s/%d rows", name, rows), func(t *testing.T) {
				db := testdb.Open(t, name)
				repo := open(t, db)
				leases := make([]Lease, min(rows, 300))
				for i := range rows {
					lease := take(t, repo, fmt.Sprintf("key-%04d", i))
					if i < len(leases) {
						leases[i] = lease
					}
				}
				mark := db.LogMark(t)
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				busy := len(leases) / 2
				if _, err := tx.Exec("SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = '" + leases[busy].Key + "' FOR UPDATE"); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				var answers []LeaseStatus
				for len(answers) < len(leases) {
					some, err := repo.Renew(t.Context(), leases[len(answers):], time.Hour)
					if err != nil {
						t.Fatal(err)
					}
					answers = append(answers, some...)
				}
				if took := time.Since(start); took > 900*time.Millisecond { // the least that InnoDB would wait
					t.Errorf("the locked row held it up for %v", took)
				}
				for i, got := range answers {
					switch {
					case i == busy && (got.State != LeaseBusy || got.Remaining > time.Minute || got.Remaining < 30*time.Second):
						t.Errorf("the locked lease: %v, %v left", got.State, got.Remaining)
					case i != busy && (got.State != LeaseStands || got.Remaining < time.Hour-time.Second):
						t.Errorf("lease %d: %v, %v left", i, got.State, got.Remaining)
					}
				}
				for _, line := range mark.NewErrors(t) {
					t.Errorf("the server's log has: %s", line)
				}
			})
		}
	}
}
