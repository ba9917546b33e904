package repository

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

// open returns a repository on db, whose table it makes if it is missing.
func open(t *testing.T, db *testdb.DB, opts ...Option) *DefaultLockRepository {
	t.Helper()
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), db.DB, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func take(t *testing.T, r *DefaultLockRepository, key string) Lease {
	t.Helper()
	req := Request{Key: key, Attempt: NewAttempt(), TTL: time.Minute, Name: key}
	out, err := r.Acquire(t.Context(), req)
	if err != nil || !out.Acquired {
		t.Fatalf("Acquire(%s) = %+v, %v", key, out, err)
	}
	return req.Lease()
}

// renew prolongs one lease by a minute.
func renew(t *testing.T, r *DefaultLockRepository, lease Lease) (bool, error) {
	answers, err := r.Renew(t.Context(), []Lease{lease}, time.Minute)
	return err == nil && answers[0].State == LeaseStands, err
}

// TestOneRoundTrip counts at the socket: each operation sends once and waits
// once, whatever the DSN says, with the driver's defaults.
func TestOneRoundTrip(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			holder := open(t, db)
			take(t, holder, "held")
			proxy := db.Proxy(t)
			through := db.Through(t, proxy)
			through.SetMaxOpenConns(1)
			r := open(t, through)
			operations := []struct {
				name string
				run  func() error
			}{
				{"acquire, renew, delete", func() error {
					lease := take(t, r, "free")
					renewed, err := renew(t, r, lease)
					if err != nil {
						return err
					}
					deleted, err := r.Delete(t.Context(), lease)
					if !renewed || !deleted {
						return fmt.Errorf("renewed %v, deleted %v, %w", renewed, deleted, err)
					}
					return err
				}},
				{"refused acquire", func() error {
					out, err := r.Acquire(t.Context(), Request{Key: "held", Attempt: NewAttempt(), TTL: time.Minute})
					if out.Acquired {
						return fmt.Errorf("acquired")
					}
					return err
				}},
			}
			for _, op := range operations { // prepares the statements
				if err := op.run(); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []int{3, 1} {
				proxy.ResetRoundTrips()
				if err := operations[i].run(); err != nil {
					t.Fatal(err)
				}
				if got := proxy.RoundTrips(); got != want {
					t.Errorf("%s: %d round trips, want %d", operations[i].name, got, want)
				}
			}
		})
	}
}

// TestPostgresPlans looks at what the server does with each statement: both
// key columns lead into the primary key, and a refused attempt writes nothing.
func TestPostgresPlans(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	r := open(t, db, WithClientID("n1")) // shorter than the column
	if _, err := db.Exec(`INSERT INTO INT_LOCK SELECT md5(i::text), 'DEFAULT', 'x', now(), now() + INTERVAL '1 hour', i FROM generate_series(1, 20000) i`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("ANALYZE INT_LOCK"); err != nil {
		t.Fatal(err)
	}
	other := open(t, db)
	lease := take(t, other, "held")
	v := r.values(Lease{Key: "held", Attempt: NewAttempt()})
	v["ttl"], v["holder"], v["lock_name"] = int64(1000), "h", "n"

	numbered := open(t, db, WithClientID("n1"), WithTokens(), WithInsertQuery(r.InsertQuery()))
	for _, s := range []*statement{r.acquire, numbered.acquire, numbered.draw, r.update, r.renew, r.remove, r.isAcquired} {
		plan := explain(t, db.DB, s, v)
		if strings.Contains(plan, "Seq Scan") || !regexp.MustCompile(`(?i)"Index Cond": "[^"]*lock_key[^"]*region`).MatchString(plan) {
			t.Errorf("%s does not use the primary key:\n%s", s.op, plan)
		}
		if written := walRecords(plan); written != 0 { // the key is another's
			t.Errorf("%s writes %d WAL records for nothing", s.op, written)
		}
	}

	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	xid := func() (x sql.NullString) {
		if err := tx.QueryRow("SELECT pg_current_xact_id_if_assigned()::text").Scan(&x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	for range 1000 {
		rows, err := tx.Query(r.acquire.bound, r.acquire.args(v, new(sendCount))...)
		if err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
	if x := xid(); x.Valid {
		t.Errorf("1,000 refused attempts drew transaction id %s", x.String)
	}
	// The same look at an attempt that is granted: the measure does measure.
	v["lock_key"] = "free"
	if plan := explain(t, db.DB, r.acquire, v); walRecords(plan) == 0 {
		t.Errorf("a granted attempt writes no WAL? %s", plan)
	}
	if ok, err := other.Delete(t.Context(), lease); err != nil || !ok {
		t.Error(ok, err)
	}
}

func explain(t *testing.T, db *sql.DB, s *statement, v values) string {
	t.Helper()
	var plan string
	query := "EXPLAIN (ANALYZE, WAL, FORMAT JSON) " + s.bound
	if err := db.QueryRow(query, s.args(v, new(sendCount))...).Scan(&plan); err != nil {
		t.Fatalf("%s: %v", s.op, err)
	}
	return plan
}

// walRecords is the number of WAL records of the whole statement: a plan node
// counts what is below it.
func walRecords(plan string) int {
	var roots []struct {
		Plan struct {
			Records int `json:"WAL Records"`
		}
	}
	if json.Unmarshal([]byte(plan), &roots) != nil || len(roots) != 1 {
		return -1
	}
	return roots[0].Plan.Records
}

// TestReplyLost cuts the connection after the server has done the work and
// before its reply arrives. lib/pq's answer to that makes database/sql run the
// statement again without a word; the other drivers return an error.
func TestReplyLost(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			direct := open(t, db)
			proxy := db.Proxy(t)
			through := db.Through(t, proxy)
			through.SetMaxOpenConns(1)
			r := open(t, through, WithClientID(direct.ClientID()))
			custom := open(t, through, WithClientID(direct.ClientID()),
				WithInsertQuery(r.InsertQuery()), WithUpdateQuery(r.UpdateQuery()))
			replyLost(t, r, proxy, 1)
			replyLost(t, custom, proxy, 2) // an update that finds nothing, then the insert
		})
	}
}

func replyLost(t *testing.T, r *DefaultLockRepository, proxy *testdb.Proxy, replyOfAcquire int) {
	t.Helper()
	// losing runs f once for nothing, so that its statement is prepared on the
	// one connection, and then loses the reply to the statement itself.
	losing := func(what string, reply int, lease Lease, f func(Lease) (bool, error)) {
		t.Helper()
		none := Lease{Key: "other", Attempt: NewAttempt()}
		if _, err := f(none); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Delete(t.Context(), none); err != nil {
			t.Fatal(err)
		}
		proxy.LoseReply(reply)
		ok, err := f(lease)
		proxy.Heal()
		switch {
		case err == nil && ok: // run twice by the driver, and right both times
		case err == nil:
			t.Fatalf("%s: a lost reply was taken for an answer", what)
		case !errors.Is(err, ErrTransient):
			t.Fatalf("%s: %v, want ErrTransient", what, err)
		}
	}
	acquire := func(l Lease) (bool, error) {
		out, err := r.Acquire(t.Context(), Request{Key: l.Key, Attempt: l.Attempt, TTL: time.Minute})
		return out.Acquired, err
	}
	renew := func(l Lease) (bool, error) { return renew(t, r, l) }
	remove := func(l Lease) (bool, error) { return r.Delete(t.Context(), l) }

	lease := Lease{Key: "k", Attempt: NewAttempt()}
	losing("acquire", replyOfAcquire, lease, acquire)
	if ok, err := r.IsAcquired(t.Context(), "k"); err != nil || !ok {
		t.Fatalf("the server did not run the acquire: %v, %v", ok, err)
	}
	if ok, err := acquire(lease); err != nil || !ok {
		t.Fatalf("the same attempt again: %v, %v", ok, err)
	}
	losing("renew", 1, lease, renew)
	losing("delete", 1, lease, remove)
	if ok, err := remove(lease); err != nil || ok {
		t.Fatalf("delete again: %v, %v, want that the first one did it", ok, err)
	}
}

// TestLockedRow: somebody's transaction has the row of an expired lease
// locked. On Postgres an attempt passes it, and says that the key is held. On
// the others it waits, at most as long as its context, and then either has the
// lock or says that the outcome is unknown.
func TestLockedRow(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			r := open(t, db)
			take(t, r, "k")
			if _, err := db.Exec("UPDATE INT_LOCK SET EXPIRED_AFTER = '2001-01-01'"); err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("UPDATE INT_LOCK SET HOLDER = 'somebody'"); err != nil {
				t.Fatal(err)
			}
			req := Request{Key: "k", Attempt: NewAttempt(), TTL: time.Minute}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			out, err := r.Acquire(ctx, req)
			if name == vendor.Postgres { // it passes the row
				if err != nil || out.Acquired || out.ClientID != r.ClientID() {
					t.Errorf("Acquire = %+v, %v, want it held", out, err)
				}
			} else if !errors.Is(err, ErrTransient) {
				t.Errorf("Acquire = %+v, %v, want ErrTransient", out, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it came back after %v, its context had 200ms", took)
			}
			time.AfterFunc(300*time.Millisecond, func() { tx.Rollback() })
			req.Attempt = NewAttempt()
			if out, err := r.Acquire(t.Context(), req); err != nil || !out.Acquired && out.ClientID != "" && out.ClientID != r.ClientID() {
				t.Errorf("Acquire after the row came free = %+v, %v", out, err)
			}
			for start := time.Now(); db.Stats().InUse != 0; time.Sleep(time.Millisecond) {
				if time.Since(start) > 5*time.Second {
					t.Fatalf("%d connections are in use", db.Stats().InUse)
				}
			}
		})
	}
}
