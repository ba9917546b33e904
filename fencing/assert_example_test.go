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
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// bookInterest books a day's interest of one account. The transaction can only
// be committed while the payer has its lock; the ledger's unique key is the
// last defence, against a payer that comes twice.
func bookInterest(ctx context.Context, db *sql.DB, hold *registry.Hold, account int, day string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fencing.AssertHeld(ctx, tx, hold); err != nil {
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

// payer is one process of the bank: its registry of locks.
func payer(ctx context.Context, db *sql.DB) *registry.JdbcLockRegistry {
	repo, err := repository.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := registry.New(repo, registry.WithOnLost(func(*registry.LostError) {}))
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// The nightly interest job, with the locks in the bank's own database. The
// first payer's lock is taken from it (an operator thought that it was dead, or
// the database's clock has jumped), and it does not know.
func ExampleAssertHeld() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "bank.db")+"?_txlock=immediate&_pragma=busy_timeout(2000)")
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
	const day = "2026-03-31"

	// The first payer pays one account and is paused.
	first, err := payer(ctx, db).Obtain("interest").LockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first payer, account 1:", bookInterest(ctx, db, first, 1, day))

	// Its lock is taken away, and the second payer has it.
	if _, err := db.ExecContext(ctx, "DELETE FROM INT_LOCK"); err != nil {
		log.Fatal(err)
	}
	second, err := payer(ctx, db).Obtain("interest").LockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// The first one wakes and goes on, before the second has paid anything.
	fmt.Println("first payer believes that it has the lock:", first.Held())
	err = bookInterest(ctx, db, first, 2, day)
	fmt.Println("first payer, account 2: refused:", errors.Is(err, registry.ErrLockLost))
	fmt.Println("first payer believes that it has the lock:", first.Held())

	// The second one does not know what was paid.
	for account := 1; account <= 2; account++ {
		fmt.Printf("second payer, account %d: %v\n", account, bookInterest(ctx, db, second, account, day))
	}
	fmt.Println("second payer, unlock:", second.Unlock(ctx))

	var cents int
	if err := db.QueryRowContext(ctx, "SELECT SUM(balance) FROM account").Scan(&cents); err != nil {
		log.Fatal(err)
	}
	fmt.Println("total:", cents)
	// Output:
	// first payer, account 1: <nil>
	// first payer believes that it has the lock: true
	// first payer, account 2: refused: true
	// first payer believes that it has the lock: false
	// second payer, account 1: this account has its interest for the day already
	// second payer, account 2: <nil>
	// second payer, unlock: <nil>
	// total: 1201200
}
