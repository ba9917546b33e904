package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// TestBadOptions: each mistake is refused at construction by its name and
// value, before anything is sent: the pool in the test leads nowhere.
func TestBadOptions(t *testing.T) {
	nowhere, err := sql.Open("postgres", "postgres://user:canary@127.0.0.1:1/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		option repository.Option
		names  string // what the error must name
	}{
		{repository.WithPrefix(""), `prefix ""`},
		{repository.WithPrefix(long), "prefix"},
		{repository.WithPrefix(`INT"`), "prefix"},
		{repository.WithPrefix("INT_;DROP TABLE x;--"), "prefix"},
		{repository.WithPrefix("INT%s"), "prefix"},
		{repository.WithPrefix("INT\x00"), "prefix"},
		{repository.WithPrefix("INT\xff"), "prefix"},
		{repository.WithPrefix("a.b.INT_"), "prefix"},
		{repository.WithRegion(""), `region ""`},
		{repository.WithRegion(long), "region"},
		{repository.WithRegion("a b"), `region "a b"`},
		{repository.WithRegion("a'"), "region"},
		{repository.WithRegion("a\x00"), "region"},
		{repository.WithClientID(""), `client id ""`},
		{repository.WithClientID(long), "client id"},
		{repository.WithClientID(" a"), `client id " a"`},
		{repository.WithClientID("日本"), "client id"},
		{repository.WithHolder(long), "holder"},
		{repository.WithHolder("a\x00"), "holder"},
		{repository.WithSpring6Layout(0), "timeToLive"},
		{repository.WithSpring6Layout(1500 * time.Microsecond), "timeToLive"},
	} {
		_, err := repository.New(t.Context(), nowhere, c.option)
		if !errors.Is(err, repository.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.names) {
			t.Errorf("want ErrInvalid about %s, got %v", c.names, err)
		}
		if len(fmt.Sprint(err)) > 400 {
			t.Errorf("an error of %d bytes: %.100v", len(err.Error()), err)
		}
	}
	for _, db := range []repository.Pool{nil, (*sql.DB)(nil), (*sqlx.DB)(nil)} {
		if _, err := repository.New(t.Context(), db); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("database %T(nil): %v, want ErrInvalid", db, err)
		}
	}
}

func TestMemoryOptions(t *testing.T) {
	for _, o := range []repository.Option{
		repository.WithRegion(""), repository.WithSpring6Layout(time.Second), repository.WithRenewQuery("x"),
	} {
		if _, err := repository.NewMemory(nil, o); !errors.Is(err, repository.ErrInvalid) {
			t.Errorf("err = %v, want ErrInvalid", err)
		}
	}
}

func TestBadQueries(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		all := ":lock_key :region :client_id :attempt :ttl"
		for query, names := range map[string]string{
			"UPDATE x SET y = 1":                ":lock_key",
			strings.Replace(all, ":ttl", "", 1): ":ttl",
			all + " :nonsense":                  "nonsense",
			all + " :":                          "",
		} {
			for _, with := range []func(string) repository.Option{
				repository.WithInsertQuery, repository.WithUpdateQuery, repository.WithRenewQuery,
			} {
				_, err := repository.New(t.Context(), db.DB, with(query))
				if names == "" {
					continue // odd, but not ours to judge; the database will
				}
				if !errors.Is(err, repository.ErrInvalid) || !strings.Contains(fmt.Sprint(err), names) {
					t.Errorf("query %q: %v, want ErrInvalid about %s", query, err, names)
				}
			}
		}
		// A cast of Postgres is not a parameter, and a query that the database
		// refuses is a permanent error.
		cast := "INSERT INTO INT_LOCK (nonsense) SELECT x::text FROM INT_LOCK WHERE 'a' IN (:lock_key, :region, :client_id, :attempt, :ttl)"
		repo, err := repository.New(t.Context(), db.DB, repository.WithInsertQuery(cast))
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		if repo.InsertQuery() != cast || repo.UpdateQuery() == "" || repo.RenewQuery() == "" {
			t.Errorf("the getters give %q, %q, %q", repo.InsertQuery(), repo.UpdateQuery(), repo.RenewQuery())
		}
		out, err := repo.Acquire(t.Context(), aRequest("k"))
		if err == nil || errors.Is(err, repository.ErrTransient) {
			t.Errorf("Acquire = %+v, %v, want a permanent error", out, err)
		}
	})
}

func aRequest(key string) repository.Request {
	return repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: time.Minute}
}

// mustFail checks an error that has to be loud: permanent, about the table,
// and with the remedy.
func mustFail(t *testing.T, what string, err error, remedies ...string) {
	t.Helper()
	if err == nil || errors.Is(err, repository.ErrTransient) {
		t.Errorf("%s: %v, want a permanent error", what, err)
		return
	}
	for _, r := range append(remedies, "INT_LOCK") {
		if !strings.Contains(err.Error(), r) {
			t.Errorf("%s: %q does not say %q", what, err, r)
		}
	}
}

func TestMissingTable(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		_, err := repository.New(t.Context(), db.DB)
		mustFail(t, "start", err, "schema.Apply", "schema/"+db.Vendor+".sql")
		if !errors.Is(err, repository.ErrTable) {
			t.Errorf("%v does not match ErrTable", err)
		}
		repo, err := repository.New(t.Context(), db.DB, repository.WithoutStartCheck())
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		_, err = repo.Acquire(t.Context(), aRequest("k"))
		mustFail(t, "first use", err, "schema.Apply")
		if !errors.Is(err, repository.ErrTable) {
			t.Errorf("%v does not match ErrTable", err)
		}
		// The table may come later.
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		if out, err := repo.Acquire(t.Context(), aRequest("k")); err != nil || !out.Acquired {
			t.Errorf("after schema.Apply: %+v, %v", out, err)
		}
	})
}

// TestOtherTables: a table of the other layout, Spring's own without our
// columns, and one that is no lock table. Where the error has statements, they
// mend it.
func TestOtherTables(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		start := func(opts ...repository.Option) error {
			repo, err := repository.New(t.Context(), db.DB, opts...)
			if err == nil {
				repo.Close()
			}
			return err
		}
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		if err := start(); err != nil {
			t.Fatal(err)
		}
		mustFail(t, "Spring 7's table as Spring 6's", start(repository.WithSpring6Layout(spring6TTL)), "EXPIRED_AFTER", "WithSpring6Layout")

		exec(t, db.DB, "DROP TABLE INT_LOCK")
		createSpring6Table(t, db)
		if err := start(repository.WithSpring6Layout(spring6TTL)); err != nil {
			t.Error(err)
		}
		mustFail(t, "Spring 6's table as Spring 7's", start(), "EXPIRED_AFTER", "WithSpring6Layout")

		for _, c := range []string{"ATTEMPT", "HOLDER", "LOCK_NAME"} {
			exec(t, db.DB, "ALTER TABLE INT_LOCK DROP COLUMN "+c)
		}
		err := start(repository.WithSpring6Layout(spring6TTL))
		mustFail(t, "Spring's own table", err, "ATTEMPT, HOLDER, LOCK_NAME", "ALTER TABLE INT_LOCK ADD COLUMN ATTEMPT")
		_, statements, _ := strings.Cut(err.Error(), "run: ")
		for s := range strings.SplitSeq(statements, "; ") {
			exec(t, db.DB, s)
		}
		if err := start(repository.WithSpring6Layout(spring6TTL)); err != nil {
			t.Errorf("after the statements it asked for: %v", err)
		}

		exec(t, db.DB, "DROP TABLE INT_LOCK")
		exec(t, db.DB, "CREATE TABLE INT_LOCK (ID INTEGER, EXPIRED_AFTER INTEGER)")
		mustFail(t, "no lock table", start(), "LOCK_KEY", "prefix")

		// Times that would be compared wrongly.
		exec(t, db.DB, "DROP TABLE INT_LOCK")
		date := map[string]string{vendor.Postgres: "TIMESTAMPTZ", vendor.SQLite: "TEXT"}[db.Vendor]
		if date == "" {
			date = "DATETIME"
		}
		exec(t, db.DB, fmt.Sprintf(`CREATE TABLE INT_LOCK (LOCK_KEY CHAR(36), REGION VARCHAR(100), CLIENT_ID CHAR(36), CREATED_DATE %s,
			EXPIRED_AFTER %[1]s, ATTEMPT BIGINT, HOLDER VARCHAR(255), LOCK_NAME VARCHAR(255), PRIMARY KEY (LOCK_KEY, REGION))`, date))
		mustFail(t, date, start(), "EXPIRED_AFTER", date)
	})
}

func TestReadOnlyDatabase(t *testing.T) {
	params := map[string]map[string]string{
		vendor.Postgres: {"default_transaction_read_only": "on"},
		vendor.MySQL:    {"transaction_read_only": "1"},
		vendor.MariaDB:  {"tx_read_only": "1"},
		vendor.SQLite:   {"mode": "ro"},
	}
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		repo, err := repository.New(t.Context(), db.With(t, params[db.Vendor]).DB)
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		_, err = repo.Acquire(t.Context(), aRequest("k"))
		mustFail(t, "acquire", err, "read-only", "primary")
	})
}

func TestClosedPool(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		second := db.Again(t)
		repo, err := repository.New(t.Context(), second.DB)
		if err != nil {
			t.Fatal(err)
		}
		second.Close()
		_, err = repo.Acquire(t.Context(), aRequest("k"))
		mustFail(t, "acquire", err, "closed")
		_, err = repository.New(t.Context(), second.DB)
		mustFail(t, "start", err, "closed")
	})
}

// TestAutocommitOff: locks that are never committed are nobody's locks.
func TestAutocommitOff(t *testing.T) {
	for _, name := range []string{vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, name)
			if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
				t.Fatal(err)
			}
			_, err := repository.New(t.Context(), db.With(t, map[string]string{"autocommit": "0"}).DB)
			if !errors.Is(err, repository.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "autocommit") {
				t.Errorf("err = %v, want ErrInvalid about autocommit", err)
			}
		})
	}
}

// TestNoSecrets: whatever goes wrong, a password of the DSN is in no error.
func TestNoSecrets(t *testing.T) {
	for driver, dsns := range map[string][]string{
		"postgres": {
			"postgres://user:canary@127.0.0.1:1/db?sslmode=disable&connect_timeout=2",
			"postgres://user:canary@127.0.0.1:bad/db",
			"host=127.0.0.1 port=1 user=u password=canary sslmode=disable connect_timeout=2",
			"host=127.0.0.1 port=1 user=u password='canary x' sslmode=nonsense",
			"postgres://user:canary x@127.0.0.1/db",
		},
		"mysql": {"user:canary@tcp(127.0.0.1:1)/db?timeout=2s"},
	} {
		for _, dsn := range dsns {
			db, err := sql.Open(driver, dsn)
			if err != nil {
				continue // refused before it came to us
			}
			defer db.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err = repository.New(ctx, db); err == nil || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", driver, err)
			}
		}
	}
}

// TestUnreachable: a database that is not there is an error that may pass.
func TestUnreachable(t *testing.T) {
	for driver, dsn := range map[string]string{
		"postgres": "postgres://user@127.0.0.1:1/db?sslmode=disable",
		"mysql":    "user@tcp(127.0.0.1:1)/db",
	} {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := repository.New(t.Context(), db); !errors.Is(err, repository.ErrTransient) {
			t.Errorf("%s: %v, want ErrTransient", driver, err)
		}
	}
}
