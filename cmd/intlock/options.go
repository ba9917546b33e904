package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/intlock/intlock/internal/opendb"
	"github.com/intlock/intlock/repository"
	"github.com/jmoiron/sqlx"
)

// options are the flags of all commands.
type options struct {
	db, prefix, region string
	json, all, yes     bool

	wait       time.Duration
	now        bool
	ttl        time.Duration
	atLeast    time.Duration
	grace      time.Duration
	heldStatus int
	reason     string
	interval   time.Duration
	notify     bool
}

func databaseFlags(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.db, "db", "", "the database, a `URL` (default: $INTLOCK_DB)")
	fs.StringVar(&o.prefix, "prefix", "INT_", "`prefix` of the table's name, which is prefix + LOCK")
}

func lockFlags(fs *flag.FlagSet, o *options) {
	databaseFlags(fs, o)
	fs.StringVar(&o.region, "region", "DEFAULT", "`region` of the locks within the table")
}

// open opens the database. Its errors show no password.
func (o *options) open(ctx context.Context) (*sqlx.DB, error) {
	dsn := o.db
	if dsn == "" {
		dsn = os.Getenv("INTLOCK_DB")
	}
	if dsn == "" {
		return nil, usageError("no database: set INTLOCK_DB or give -db")
	}
	db, err := opendb.Open(ctx, dsn, 4)
	if err != nil {
		return nil, failure{exitDatabase, err}
	}
	return db, nil
}

// repository opens the database and the lock table.
func (o *options) repository(ctx context.Context, opts ...repository.Option) (repo *repository.DefaultLockRepository, end func(), err error) {
	db, err := o.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	opts = append([]repository.Option{repository.WithPrefix(o.prefix), repository.WithHolder(holder())}, opts...)
	if o.region != "" {
		opts = append(opts, repository.WithRegion(o.region))
	}
	repo, err = repository.New(ctx, db, opts...)
	if err != nil {
		db.Close()
		return nil, nil, databaseError(err)
	}
	return repo, func() { repo.Close(); db.Close() }, nil
}

// databaseError gives an error its exit status.
func databaseError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, repository.ErrInvalid):
		return usageError("%w", err)
	case errors.Is(err, repository.ErrTable):
		err = errors.Join(err, errors.New("`intlock schema apply` makes what is missing, `intlock schema check` says what does not fit"))
	}
	return failure{exitDatabase, err}
}

// holder says who we are: user and host.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return userName() + "@" + host
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint("uid-", os.Getuid())
}
