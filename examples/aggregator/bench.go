package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/intlock/intlock/internal/opendb"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

// bench is the place of one run: a database with the tables in it.
type bench struct {
	dsn       string
	run       string
	db        *sqlx.DB
	store     *store
	locks     *repository.DefaultLockRepository
	madeLocks bool   // INT_LOCK was not there before
	temporary string // the folder of the SQLite file, if it is ours
	keep      bool
}

// openBench makes what is missing. It does so before any worker exists: many
// processes that open a fresh SQLite file at once find it busy.
func openBench(ctx context.Context, s settings) (*bench, error) {
	var id [4]byte
	rand.Read(id[:]) // never fails, by its documentation
	b := &bench{dsn: s.db, run: hex.EncodeToString(id[:]), keep: s.keep}
	if err := b.open(ctx); err != nil {
		b.keep = false
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) open(ctx context.Context) (err error) {
	if b.dsn == "" {
		if b.temporary, err = os.MkdirTemp("", "intlock-aggregator-"); err != nil {
			return err
		}
		b.dsn = filepath.Join(b.temporary, "aggregator.db")
	}
	if b.db, err = opendb.Open(ctx, b.dsn, 2); err != nil {
		return err
	}
	b.madeLocks = errors.Is(schema.Check(ctx, b.db, "INT_"), schema.ErrMissing)
	if err := schema.Apply(ctx, b.db, "INT_"); err != nil {
		return err
	}
	if b.locks, err = repository.New(ctx, b.db, repository.WithRegion(region(b.run))); err != nil {
		return err
	}
	b.store = &store{db: b.db, vendor: b.locks.Vendor(), run: b.run}
	return b.store.create(ctx)
}

func (b *bench) String() string {
	name := map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite"}[b.locks.Vendor()]
	if b.temporary != "" {
		name += ", a temporary file"
	}
	return name
}

// locksLeft counts the locks of this run that are still in the table. A killed
// worker cannot give back its locks; they expire, and who needs one takes it
// over. If nobody did, they are swept away here once their time is up.
func (b *bench) locksLeft(ctx context.Context, ttl time.Duration) (int, error) {
	for patience := time.Now().Add(ttl + time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, _, err := b.locks.DeleteExpired(ctx, ""); err != nil {
			return 0, err
		}
		left, err := b.locks.List(ctx)
		if err != nil || len(left) == 0 || time.Now().After(patience) {
			return len(left), err
		}
	}
}

// clear removes what the run has made, unless it is to be kept.
func (b *bench) clear(to *screen) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	switch {
	case b.keep && b.temporary != "":
		to.note("kept: %s", b.dsn)
	case b.keep:
		to.note("kept: tables INT_LOCK, AGG_GROUP, AGG_MESSAGE and AGG_OUTBOX, rows of RUN_ID %s", b.run)
	case b.temporary == "":
		var dropped bool
		dropped, err = b.store.remove(ctx)
		// Only a table of our own goes, and not under the feet of another run.
		if err == nil && dropped && b.madeLocks {
			err = schema.Drop(ctx, b.db, "INT_")
		}
	}
	b.close()
	return err
}

func (b *bench) close() {
	if b.locks != nil {
		b.locks.Close()
	}
	if b.db != nil {
		b.db.Close()
	}
	if b.temporary != "" && !b.keep {
		os.RemoveAll(b.temporary)
	}
}
