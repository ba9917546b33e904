package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/schema"
)

// errPaid is the last refusal, that of the unique key.
var errPaid = errors.New("this account has its interest for the day already")

// payInterest books a day's interest of one account. Three things protect it:
// the lock (the caller's, whose token this is) keeps two payers apart, the
// guard refuses a payer that has lost the lock, and the ledger's unique key
// refuses what nobody should have tried.
func payInterest(ctx context.Context, db *sql.DB, guard *fencing.Guard, token int64, account int, day string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// First, so that everything read below is at least as new as the last
	// payer's last write.
	if err := guard.Check(ctx, tx, "interest", token); err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO ledger (account, day, cents)
		SELECT id, ?, balance / 1000 FROM account WHERE id = ?
		ON CONFLICT (account, day) DO NOTHING`, day, account)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errPaid
	}
	if _, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + balance / 1000 WHERE id = ?`, account); err != nil {
		return err
	}
	return tx.Commit()
}

// The nightly interest job. A payer is paused for longer than its lease, and
// another one takes over. When the first wakes, it goes on where it stopped,
// and the database refuses it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "bank.db")+"?_pragma=busy_timeout(2000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
		CREATE TABLE ledger (account INTEGER NOT NULL, day TEXT NOT NULL, cents INTEGER NOT NULL, UNIQUE (account, day));
		INSERT INTO account VALUES (1, 500000), (2, 700000)`); err != nil {
		log.Fatal(err)
	}
	if err := schema.Apply(ctx, db, schema.DefaultPrefix); err != nil {
		log.Fatal(err)
	}
	guard, err := fencing.NewGuard(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	const day = "2026-03-31"

	// The first payer is granted the lock with token 7, pays one account and is paused.
	const first = 7
	if err := guard.Advance(ctx, "interest", first); err != nil {
		log.Fatal(err)
	}
	fmt.Println("first payer, account 1:", payInterest(ctx, db, guard, first, 1, day))

	// Its lease ends. The second payer is granted the lock with token 8.
	const second = 8
	if err := guard.Advance(ctx, "interest", second); err != nil {
		log.Fatal(err)
	}

	// The first one wakes before the second has paid anything.
	err = payInterest(ctx, db, guard, first, 2, day)
	var stale *fencing.StaleTokenError
	if errors.As(err, &stale) {
		fmt.Printf("first payer, account 2: refused, its token is %d and %d was seen\n", stale.Presented, stale.Highest)
	}

	// The second one has the lock and does not know what was paid.
	for account := 1; account <= 2; account++ {
		fmt.Printf("second payer, account %d: %v\n", account, payInterest(ctx, db, guard, second, account, day))
	}

	var cents int
	if err := db.QueryRowContext(ctx, "SELECT SUM(balance) FROM account").Scan(&cents); err != nil {
		log.Fatal(err)
	}
	fmt.Println("total:", cents)
	// Output:
	// first payer, account 1: <nil>
	// first payer, account 2: refused, its token is 7 and 8 was seen
	// second payer, account 1: this account has its interest for the day already
	// second payer, account 2: <nil>
	// total: 1201200
}
