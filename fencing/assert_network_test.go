package fencing_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// TestConnectionCutDuringAssertHeld, before the server has got the statement or
// before its answer has come: it is an error, nothing can be committed, and it
// says nothing about the lock, which the next transaction may assert.
func TestConnectionCutDuringAssertHeld(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		for what, cut := range map[string]func(p *testdb.Proxy){
			"request": func(p *testdb.Proxy) { p.CutAfter(testdb.ToServer, 10) },
			"reply":   func(p *testdb.Proxy) { p.LoseReply(1) },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				db := testdb.Open(t, name)
				createTables(t, db)
				proxy := db.Proxy(t)
				through := db.Through(t, proxy)
				hold := lock(t, newLocks(t, db.DB), "job", registry.WithTTL(time.Minute))

				tx := begin(t, through, sql.LevelDefault)
				exec(t, tx, "UPDATE account SET balance = 1 WHERE id = 1")
				cut(proxy)
				err := fencing.AssertHeld(t.Context(), tx, hold)
				if err == nil || !errors.Is(err, repository.ErrTransient) || errors.Is(err, registry.ErrLockLost) {
					t.Errorf("%v, want ErrTransient", err)
				}
				if err := tx.Commit(); err == nil {
					t.Error("it was committed")
				}
				proxy.Heal()
				if !hold.Held() {
					t.Error("a cut connection made the lock lost")
				}
				// The server may take a moment to undo what has lost its client.
				_, err = inTx(t.Context(), through.DB, sql.LevelDefault, func(tx *sql.Tx) error {
					if err := fencing.AssertHeld(t.Context(), tx, hold); err != nil {
						return err
					}
					_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 10 WHERE id = 1")
					return err
				})
				if err != nil {
					t.Errorf("the next transaction: %v", err)
				}
				if got := number(t, db, "SELECT balance FROM account WHERE id = 1"); got != 10 {
					t.Errorf("the balance is %d, want 10", got)
				}
				if err := hold.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
