package repository_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

var grants = flag.Int("grants", 0, "grants per setting of TestTokenOrder; 0: 20,000 per database")

func TestMain(m *testing.M) {
	testdb.Main(m, map[string]func(){"grants": grantsChild})
}

// defaultLevels are the isolation levels that a session may have as its default.
var defaultLevels = []setting{
	{name: "read committed", vendors: []string{vendor.Postgres}},
	{name: "repeatable read", vendors: []string{vendor.Postgres}, params: map[string]string{"default_transaction_isolation": "repeatable read"}},
	{name: "serializable", vendors: []string{vendor.Postgres}, params: map[string]string{"default_transaction_isolation": "serializable"}},
	{name: "read uncommitted", vendors: []string{vendor.MySQL}, params: map[string]string{"transaction_isolation": "'READ-UNCOMMITTED'"}},
	{name: "read committed", vendors: []string{vendor.MySQL}, params: map[string]string{"transaction_isolation": "'READ-COMMITTED'"}},
	{name: "repeatable read", vendors: []string{vendor.MySQL}},
	{name: "serializable", vendors: []string{vendor.MySQL}, params: map[string]string{"transaction_isolation": "'SERIALIZABLE'"}},
	{name: "read uncommitted", vendors: []string{vendor.MariaDB}, params: map[string]string{"tx_isolation": "'READ-UNCOMMITTED'"}},
	{name: "read committed", vendors: []string{vendor.MariaDB}, params: map[string]string{"tx_isolation": "'READ-COMMITTED'"}},
	{name: "repeatable read", vendors: []string{vendor.MariaDB}},
	{name: "serializable", vendors: []string{vendor.MariaDB}, params: map[string]string{"tx_isolation": "'SERIALIZABLE'"}},
	{name: "serializable", vendors: []string{vendor.SQLite}},
}

// TestTokenOrder: 4 processes take one key again and again, give it back, let
// it expire, or have it deleted by somebody else. The tokens have the order of
// the grants.
//
// Each holder writes its token into a table with a rising id while it holds the
// lock and before it does anything to end that, so the ids have the true order.
// Times would not do: of two requests the later one may be granted first.
func TestTokenOrder(t *testing.T) {
	for _, name := range testdb.Vendors() {
		t.Run(name, func(t *testing.T) {
			// One database after the other: elsewhere tests wait for leases to end.
			var own []setting
			for _, s := range defaultLevels {
				if s.vendors[0] == name {
					own = append(own, s)
				}
			}
			total := 20_000
			if testing.Short() {
				total /= 10
			}
			n := cmp.Or(*grants, total/len(own))
			for _, s := range own {
				t.Run(s.name, func(t *testing.T) { s.order(t, testdb.Open(t, name), n) })
			}
			// Where two statements take the key, they deadlock often on MySQL
			// and MariaDB, and few grants take long.
			s := setting{name: "custom queries", blind: true}
			t.Run(s.name, func(t *testing.T) { s.order(t, testdb.Open(t, name), cmp.Or(*grants, total/10)) })
		})
	}
}

const processes, clientsEach = 4, 2

func (s setting) order(t *testing.T, db *testdb.DB, n int) {
	if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
		t.Fatal(err)
	}
	id := map[string]string{vendor.Postgres: "BIGINT GENERATED ALWAYS AS IDENTITY", vendor.SQLite: "INTEGER"}[db.Vendor]
	if id == "" {
		id = "BIGINT AUTO_INCREMENT"
	}
	exec(t, db.DB, "CREATE TABLE GRANTED (ID "+id+" PRIMARY KEY, TOKEN BIGINT NOT NULL)")
	mark := db.LogMark(t)
	used := db
	if s.params != nil {
		used = db.With(t, s.params)
	}
	start := time.Now()
	var children []*testdb.Process
	each := (n + processes*clientsEach - 1) / (processes * clientsEach)
	for range processes {
		children = append(children, testdb.Spawn(t, "grants", map[string]string{
			"TOKEN_TEST_DRIVER": used.Driver, "TOKEN_TEST_DSN": used.DSN, "TOKEN_TEST_VENDOR": used.Vendor,
			"TOKEN_TEST_GRANTS": strconv.Itoa(each), "TOKEN_TEST_CUSTOM": strconv.FormatBool(s.blind),
		}))
	}
	for _, c := range children {
		if err := c.Wait(t, 5*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)

	tokens := readTokens(t, db)
	var backward, repeated int
	seen := make(map[int64]bool)
	for i, token := range tokens {
		if i > 0 && token <= tokens[i-1] {
			if backward++; backward <= 3 {
				t.Errorf("grant %d has token %d, the one before %d", i, token, tokens[i-1])
			}
		}
		if seen[token] {
			repeated++
		}
		seen[token] = true
	}
	t.Logf("%d grants in %.1fs: %d repeats, %d backward steps", len(tokens), took.Seconds(), repeated, backward)
	if want := each * processes * clientsEach; len(tokens) != want || repeated != 0 || backward != 0 {
		t.Errorf("%d grants, %d repeats, %d backward steps; want %d, 0 and 0", len(tokens), repeated, backward, want)
	}
	s.checkLog(t, db, mark, len(tokens))
}

func readTokens(t *testing.T, db *testdb.DB) []int64 {
	t.Helper()
	rows, err := db.Query("SELECT TOKEN FROM GRANTED ORDER BY ID")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tokens []int64
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// checkLog lets pass what the lock row itself costs at this contention, with
// tokens or without: the losers of races under Postgres' stricter levels, and
// InnoDB's deadlocks of those who wait for a row that is being deleted. None of
// them is about the token source.
func (s setting) checkLog(t *testing.T, db *testdb.DB, mark *testdb.Mark, grants int) {
	t.Helper()
	deadlocks := 0
	for _, line := range mark.NewErrors(t) {
		switch {
		case strings.Contains(line, "`INT_LOCK_TOKEN`"):
			t.Errorf("the server's log has: %s", line)
		case db.Vendor == vendor.Postgres && s.name != "read committed" && strings.Contains(line, "could not serialize"):
		case db.Vendor != vendor.Postgres && strings.Contains(line, "deadlock detected"):
			deadlocks++
		default:
			t.Errorf("the server's log has: %s", line)
		}
	}
	if deadlocks > grants/10 && !s.blind {
		t.Errorf("%d deadlocks in %d grants", deadlocks, grants)
	}
}

// grantsChild is one process of TestTokenOrder.
func grantsChild() {
	must := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	db, err := sql.Open(os.Getenv("TOKEN_TEST_DRIVER"), os.Getenv("TOKEN_TEST_DSN"))
	must(err)
	db.SetMaxIdleConns(clientsEach)
	each, err := strconv.Atoi(os.Getenv("TOKEN_TEST_GRANTS"))
	must(err)
	options := []repository.Option{repository.WithTokens()}
	if os.Getenv("TOKEN_TEST_CUSTOM") == "true" {
		repo, err := repository.New(context.Background(), db)
		must(err)
		options = append(options, repository.WithInsertQuery(repo.InsertQuery()))
	}
	var wg sync.WaitGroup
	for range clientsEach {
		repo, err := repository.New(context.Background(), db, options...)
		must(err)
		wg.Go(func() {
			for range each {
				must(grantOnce(db, repo))
			}
		})
	}
	wg.Wait()
}

// grantOnce takes the hot key, records the token, and ends the lease: one in a
// hundred as an operator does, five by expiry, the others as a holder.
func grantOnce(db *sql.DB, repo *repository.DefaultLockRepository) error {
	ctx := context.Background()
	req := aRequest("hot")
	out, err := repo.Acquire(ctx, req)
	for !out.Acquired {
		if err != nil && !errors.Is(err, repository.ErrTransient) {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		out, err = repo.Acquire(ctx, req)
	}
	if err := whileBusy(func() error {
		_, err := db.Exec(fmt.Sprint("INSERT INTO GRANTED (TOKEN) VALUES (", out.Token, ")"))
		return err
	}); err != nil {
		return err
	}
	switch dice := rand.IntN(100); {
	case dice < 1:
		return whileBusy(func() error { return slowly(db, "DELETE FROM INT_LOCK") })
	case dice < 6:
		expire := expireQuery(os.Getenv("TOKEN_TEST_VENDOR"), false, "DEFAULT", "hot")
		return whileBusy(func() error { return slowly(db, expire) })
	}
	return whileBusy(func() error {
		ok, err := repo.Delete(ctx, req.Lease())
		if err == nil && !ok {
			err = errors.New("a lease that nobody else touches was lost")
		}
		return err
	})
}

// slowly is what somebody at a console does: others queue for the row meanwhile,
// and are served in an order of the database's own.
func slowly(db *sql.DB, query string) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(query); err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond)
	return tx.Commit()
}

// whileBusy repeats a statement that another's got in the way of.
func whileBusy(f func() error) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil || time.Since(start) > 20*time.Second {
			return err
		}
		text := err.Error()
		if !strings.Contains(text, "Deadlock") && !strings.Contains(text, "locked") && !strings.Contains(text, "could not serialize") {
			return err
		}
	}
}
