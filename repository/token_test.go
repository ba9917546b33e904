package repository

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

func takeToken(t *testing.T, r *DefaultLockRepository, key string) (Lease, int64) {
	t.Helper()
	req := Request{Key: key, Attempt: NewAttempt(), TTL: time.Minute}
	out, err := r.Acquire(t.Context(), req)
	if err != nil || !out.Acquired {
		t.Fatalf("Acquire(%s) = %+v, %v", key, out, err)
	}
	return req.Lease(), out.Token
}

// openBoth opens a repository whose acquire is one statement, and one that
// takes Spring's path of two.
func openBoth(t *testing.T, db *testdb.DB) map[string]*DefaultLockRepository {
	r := open(t, db, WithTokens())
	return map[string]*DefaultLockRepository{"built in": r, "custom": open(t, db, WithTokens(), WithInsertQuery(r.InsertQuery()))}
}

// TestTokenRoundTrips counts at the socket what tokens cost: a round trip on
// MySQL for a grant, and nothing else.
func TestTokenRoundTrips(t *testing.T) {
	for name, want := range map[string]int{vendor.Postgres: 1, vendor.MySQL: 2, vendor.MariaDB: 1} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			take(t, open(t, db), "held")
			proxy := db.Proxy(t)
			through := db.Through(t, proxy)
			through.SetMaxOpenConns(1)
			r := open(t, through, WithTokens())
			for round := range 2 { // the first prepares the statements
				proxy.ResetRoundTrips()
				lease, token := takeToken(t, r, "free")
				if got := proxy.RoundTrips(); round > 0 && got != want {
					t.Errorf("acquire with token %d took %d round trips, want %d", token, got, want)
				}
				if _, err := r.Delete(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				proxy.ResetRoundTrips()
				out, err := r.Acquire(t.Context(), Request{Key: "held", Attempt: NewAttempt(), TTL: time.Minute})
				if err != nil || out.Acquired || out.Remaining <= 0 {
					t.Fatalf("Acquire(held) = %+v, %v", out, err)
				}
				if got := proxy.RoundTrips(); round > 0 && got != 1 {
					t.Errorf("a refusal took %d round trips, want 1", got)
				}
			}
		})
	}
}

// TestRefusalDrawsNoToken, nor does a repository without tokens.
func TestRefusalDrawsNoToken(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		off := open(t, db)
		for name, r := range openBoth(t, db) {
			lease, token := takeToken(t, r, "k")
			for range 20 {
				if out, err := r.Acquire(t.Context(), Request{Key: "k", Attempt: NewAttempt(), TTL: time.Minute}); err != nil || out.Acquired {
					t.Fatalf("Acquire of a held key = %+v, %v", out, err)
				}
			}
			if _, without := takeToken(t, off, "other "+name[:1]); without != 0 {
				t.Errorf("a repository without tokens gave token %d", without)
			}
			if _, err := r.Delete(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			lease, next := takeToken(t, r, "k")
			if next != token+TokenStep {
				t.Errorf("%s: the tokens are %d and %d, with nothing but refusals between them", name, token, next)
			}
			if _, err := r.Delete(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestNoTokenWithoutLease: a holder that was paused between taking the key and
// drawing the token gets none if the lease is gone, and none while somebody's
// transaction is about to take it.
func TestNoTokenWithoutLease(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		weak := db
		if db.Vendor == vendor.MySQL { // at other levels a plain SELECT of REPLACE locks too
			weak = db.With(t, map[string]string{"transaction_isolation": "'READ-COMMITTED'"})
		}
		r := openBoth(t, weak)["custom"] // draws with a statement of its own everywhere
		past := "'2001-01-01'"
		if db.Vendor == vendor.SQLite {
			past = "0"
		}
		for what, query := range map[string]string{
			"expired": "UPDATE INT_LOCK SET EXPIRED_AFTER = " + past,
			"taken":   "UPDATE INT_LOCK SET CLIENT_ID = 'other'",
			"deleted": "DELETE FROM INT_LOCK",
		} {
			lease, token := takeToken(t, r, what)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			run := func(query string) {
				t.Helper()
				if _, err := conn.ExecContext(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
			run("BEGIN")
			run(query + " WHERE LOCK_KEY = '" + what + "'")
			drawn := make(chan error, 1)
			go func() {
				out, err := r.drawToken(t.Context(), r.values(lease))
				if err == nil {
					err = fmt.Errorf("token %d", out.Token)
				}
				drawn <- err
			}()
			select {
			case err = <-drawn:
				t.Errorf("%s: the draw did not wait for the row: %v", what, err)
			case <-time.After(100 * time.Millisecond):
				run("COMMIT")
				err = <-drawn
			}
			if !errors.Is(err, errLeaseGone) || !errors.Is(err, ErrTransient) || errors.Is(err, ErrNotExecuted) {
				t.Errorf("%s: %v, want a transient error about the lease", what, err)
			}
			if _, next := takeToken(t, r, "next "+what); next != token+TokenStep {
				t.Errorf("%s: the next token is %d, want %d: one was drawn for nothing", what, next, token+TokenStep)
			}
		}
	})
}

// TestRefusedDrawIsUnknown: the database refused to draw, and the key is taken
// all the same. That must not be reported as a request without effect.
func TestRefusedDrawIsUnknown(t *testing.T) {
	for name, params := range map[string]map[string]string{vendor.MariaDB: {}, vendor.SQLite: {"_pragma": "busy_timeout(0)"}} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			insert := open(t, db).InsertQuery()
			r := open(t, db.With(t, params), WithTokens(), WithInsertQuery(insert))
			lease, _ := takeToken(t, r, "k")
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("UPDATE INT_LOCK SET HOLDER = 'somebody'"); err != nil {
				t.Fatal(err)
			}
			out, err := r.drawToken(t.Context(), r.values(lease))
			if !errors.Is(err, ErrTransient) || errors.Is(err, ErrNotExecuted) {
				t.Errorf("draw = %+v, %v, want an unknown outcome", out, err)
			}
		})
	}
}

// TestTokenReplyLost: the answer with the token is lost. The same attempt asks
// again and gets another one, above all before it.
func TestTokenReplyLost(t *testing.T) {
	for name, reply := range map[string]int{vendor.Postgres: 1, vendor.MySQL: 2, vendor.MariaDB: 1} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			proxy := db.Proxy(t)
			through := db.Through(t, proxy)
			through.SetMaxOpenConns(1)
			r := open(t, through, WithTokens())
			_, last := takeToken(t, r, "warm")
			proxy.LoseReply(reply)
			req := Request{Key: "k", Attempt: NewAttempt(), TTL: time.Minute}
			out, err := r.Acquire(t.Context(), req)
			proxy.Heal()
			if err != nil && (!errors.Is(err, ErrTransient) || errors.Is(err, ErrNotExecuted)) || err == nil && out.Token != last+2*TokenStep {
				t.Fatalf("Acquire = %+v, %v, want an unknown outcome, or what the driver got when it asked again", out, err)
			}
			if out, err = r.Acquire(t.Context(), req); err != nil || out.Token < last+2*TokenStep {
				t.Errorf("the same attempt again = %+v, %v, want a token above %d", out, err, last+TokenStep)
			}
		})
	}
}

// TestDrawFailsForGood: no token can be drawn, today or tomorrow. The error says
// what to run, and no lock is left behind.
func TestDrawFailsForGood(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		for name, r := range openBoth(t, db) {
			t.Run(name, func(t *testing.T) {
				dropTokens(t, db)
				out, err := r.Acquire(t.Context(), Request{Key: "k", Attempt: NewAttempt(), TTL: time.Minute})
				if !errors.Is(err, ErrTable) || errors.Is(err, ErrTransient) || !strings.Contains(fmt.Sprint(err), "schema.Apply") {
					t.Errorf("Acquire = %+v, %v, want ErrTable with the remedy", out, err)
				}
				if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
					t.Errorf("List = %+v, %v, want no lock", list, err)
				}
				if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
					t.Fatal(err)
				}
				lease, _ := takeToken(t, r, "k")
				if _, err := r.Delete(t.Context(), lease); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func dropTokens(t *testing.T, db *testdb.DB) {
	t.Helper()
	kind := "TABLE"
	if db.Vendor == vendor.Postgres || db.Vendor == vendor.MariaDB {
		kind = "SEQUENCE"
	}
	if _, err := db.Exec("DROP " + kind + " INT_LOCK_TOKEN"); err != nil {
		t.Fatal(err)
	}
}
