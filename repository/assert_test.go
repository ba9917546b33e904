package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

func grant(t *testing.T, repo repository.LockRepository, key string) repository.Lease {
	t.Helper()
	req := aRequest(key)
	if out, err := repo.Acquire(t.Context(), req); err != nil || !out.Acquired {
		t.Fatalf("acquire %q: %+v, %v", key, out, err)
	}
	return req.Lease()
}

// manual is a *sql.Conn on which somebody has said BEGIN.
type manual struct{ *sql.Conn }

func (m manual) Commit() error   { return m.end("COMMIT") }
func (m manual) Rollback() error { return m.end("ROLLBACK") }
func (m manual) end(how string) error {
	_, err := m.ExecContext(context.Background(), how)
	m.Close()
	return err
}

// transactions are the ways of having one.
var transactions = map[string]func(*testing.T, *testdb.DB) repository.Tx{
	"sql.Tx": func(t *testing.T, db *testdb.DB) repository.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	},
	"sqlx.Tx": func(t *testing.T, db *testdb.DB) repository.Tx {
		return sqlx.NewDb(db.DB, db.Driver).MustBeginTx(t.Context(), nil)
	},
	"sql.Conn": func(t *testing.T, db *testdb.DB) repository.Tx {
		conn, err := db.Conn(t.Context())
		if err == nil {
			_, err = conn.ExecContext(t.Context(), "BEGIN")
		}
		if err != nil {
			t.Fatal(err)
		}
		return manual{conn}
	},
	"traced": func(t *testing.T, db *testdb.DB) repository.Tx {
		tx, err := traced(t, db).(*sql.DB).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	},
}

// TestAssertHeld: every answer, in every kind of transaction, on both layouts.
func TestAssertHeld(t *testing.T) {
	for _, spring6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("Spring 6 %v", spring6), func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.DB) {
				mark := db.LogMark(t)
				var options []repository.Option
				if spring6 {
					createSpring6Table(t, db)
					options = append(options, repository.WithSpring6Layout(spring6TTL))
				} else if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
					t.Fatal(err)
				}
				repo, err := repository.New(t.Context(), db.DB, options...)
				if err != nil {
					t.Fatal(err)
				}
				other, err := repository.New(t.Context(), db.DB, append(options, repository.WithHolder("the other"))...)
				if err != nil {
					t.Fatal(err)
				}
				for kind, begin := range transactions {
					check := func(key string, lease repository.Lease, want repository.LeaseStatus) {
						t.Helper()
						tx := begin(t, db)
						got, err := repo.AssertHeld(t.Context(), tx, lease)
						if err != nil {
							t.Errorf("%s, %s: %v", kind, key, err)
						}
						if left := got.Remaining; want.State == repository.LeaseStands && (left <= 50*time.Second || left > time.Minute) {
							t.Errorf("%s, %s: %v left of a minute", kind, key, left)
						}
						if got.Remaining = 0; got != want {
							t.Errorf("%s, %s: %+v, want %+v", kind, key, got, want)
						}
						if err := tx.Commit(); err != nil {
							t.Errorf("%s, %s: commit: %v", kind, key, err)
						}
					}
					stands := grant(t, repo, "stands")
					check("stands", stands, repository.LeaseStatus{State: repository.LeaseStands})
					check("stands, again", stands, repository.LeaseStatus{State: repository.LeaseStands})
					second := stands
					second.Attempt = repository.NewAttempt()
					check("another attempt's", second, repository.LeaseStatus{State: repository.LeaseTaken, ClientID: repo.ClientID(), Holder: holderOf(t, repo, "stands")})

					expired := grant(t, repo, "expired")
					expire(t, db, spring6, "DEFAULT", "expired")
					check("expired", expired, repository.LeaseStatus{State: repository.LeaseExpired})
					taker := grant(t, other, "expired")
					check("taken over", expired, repository.LeaseStatus{State: repository.LeaseTaken, ClientID: other.ClientID(), Holder: "the other"})
					exec(t, db.DB, "UPDATE INT_LOCK SET CLIENT_ID = 'java', HOLDER = NULL, ATTEMPT = NULL WHERE LOCK_KEY = 'expired'")
					check("taken over by Java", expired, repository.LeaseStatus{State: repository.LeaseTaken, ClientID: "java"})
					exec(t, db.DB, "DELETE FROM INT_LOCK WHERE LOCK_KEY = 'expired'")
					check("deleted", taker, repository.LeaseStatus{State: repository.LeaseDeleted})
					if ok, err := repo.Delete(t.Context(), stands); err != nil || !ok {
						t.Error(ok, err)
					}
					check("released", stands, repository.LeaseStatus{State: repository.LeaseDeleted})
				}
				for _, line := range mark.NewErrors(t) {
					t.Errorf("the server's log has: %s", line)
				}
			})
		})
	}
}

func holderOf(t *testing.T, repo repository.LockRepository, key string) string {
	t.Helper()
	infos, err := repo.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.Key == key {
			return info.Holder
		}
	}
	return ""
}

// TestAssertNames: whatever characters a key and a region may have, and however
// a connection reads texts, a lease is asserted by its own row.
func TestAssertNames(t *testing.T) {
	keys := []string{"a", "A", "a'b", `a"b`, "a`b", `a\`, `\'`, `a\'b`, "'; DROP TABLE INT_LOCK; --", "?", "$1", ":key", "{region}", "%", "a  b", "00", "123456789012345678901234567890123456"}
	settings := map[string][]map[string]string{
		vendor.Postgres: {nil, {"standard_conforming_strings": "off"}, {"client_encoding": "UTF8", "TimeZone": "America/New_York", "binary_parameters": "yes"}},
		vendor.MySQL:    {nil, {"sql_mode": "'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", "time_zone": "'-05:00'"}, {"charset": "latin1", "parseTime": "true"}, {"interpolateParams": "true"}},
		vendor.SQLite:   {nil},
	}
	settings[vendor.MariaDB] = settings[vendor.MySQL]
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		for _, params := range settings[db.Vendor] {
			used := db
			if params != nil {
				used = db.With(t, params)
			}
			for _, region := range []string{"r", "R", "a:key.b-c_d"} {
				repo, err := repository.New(t.Context(), db.DB, repository.WithRegion(region))
				if err != nil {
					t.Fatal(err)
				}
				leases := map[string]repository.Lease{}
				for _, key := range keys {
					leases[key] = grant(t, repo, key)
				}
				for key, lease := range leases {
					tx := transactions["sql.Tx"](t, used)
					got, err := repo.AssertHeld(t.Context(), tx, lease)
					if err != nil || got.State != repository.LeaseStands {
						t.Errorf("%v, region %s, key %q: %v, %v", params, region, key, got, err)
					}
					tx.Rollback()
					if ok, err := repo.Delete(t.Context(), lease); err != nil || !ok {
						t.Errorf("delete %q: %v, %v", key, ok, err)
					}
				}
			}
		}
	})
}

// TestAssertInputs: what cannot work says why, and sends nothing if it can be
// known before.
func TestAssertInputs(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		repo := newRepository(t, db.DB)
		lease := grant(t, repo, "k")
		ask := func(tx repository.Tx, lease repository.Lease) error {
			t.Helper()
			got, err := repo.AssertHeld(t.Context(), tx, lease)
			if got.State == repository.LeaseStands {
				t.Error("it stands")
			}
			return err
		}
		if err := ask(nil, lease); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("no transaction: %v", err)
		}
		for _, key := range []string{"", " k", "k ", "ä", "k\x00", "1234567890123456789012345678901234567"} {
			tx := transactions["sql.Tx"](t, db)
			if err := ask(tx, repository.Lease{Key: key, Attempt: 1}); !errors.Is(err, repository.ErrInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
			tx.Rollback()
		}
		ended := transactions["sql.Tx"](t, db)
		ended.Rollback()
		if err := ask(ended, lease); !errors.Is(err, sql.ErrTxDone) || errors.Is(err, repository.ErrTransient) {
			t.Errorf("a transaction that has ended: %v", err)
		}
		if db.Vendor != vendor.SQLite { // whose driver begins an ordinary one
			readOnly, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			mustFail(t, "a read-only transaction", ask(readOnly, lease), "read-only")
			readOnly.Rollback()
		}
		for _, name := range testdb.Vendors() {
			elsewhere := testdb.Open(t, name) // empty, and perhaps of another vendor
			tx := transactions["sql.Tx"](t, elsewhere)
			mustFail(t, "a transaction in another database, "+name, ask(tx, lease), "the database that the locks are in ("+db.Vendor+")")
			tx.Rollback()
		}
		tx := transactions["sql.Tx"](t, db)
		defer tx.Rollback()
		repo.Close()
		if err := ask(tx, lease); !errors.Is(err, repository.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
