package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
	"github.com/jmoiron/sqlx"
)

var doctorCommand = &command{
	name:    "doctor",
	summary: "say whether this database is fit for locks",
	usage:   "doctor [flags]",
	text: `
Looks at the database as a program that locks would: whether it can be reached and how
fast it answers, the tables, whether locks and tokens can be had (it takes a lock in
the region INTLOCK_DOCTOR, renews it and gives it back), the clocks, the isolation
level, the connections that are left, and whether a pooler stands in between.

Exit status: 0 if nothing is wrong, 1 if something is, 69 if the database cannot be
reached.`,
	flags: func(fs *flag.FlagSet, o *options) {
		databaseFlags(fs, o)
		fs.BoolVar(&o.json, "json", false, "print JSON")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		if len(args) > 0 {
			return usageError("unexpected argument %q", args[0])
		}
		db, err := o.open(ctx)
		if err != nil {
			return err
		}
		defer db.Close()
		d := &doctor{db: db, prefix: o.prefix}
		d.examine(ctx)
		if o.json {
			err = printJSON(p.out, d.findings)
		} else {
			w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
			for _, f := range d.findings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Verdict, f.What, strings.ReplaceAll(f.Text, "\n", "\n\t\t"))
			}
			w.Flush()
		}
		for _, f := range d.findings {
			if f.Verdict == bad && err == nil {
				err = exited(exitFailed)
			}
		}
		return err
	},
}

// A finding is one thing that was looked at.
type finding struct {
	Verdict string `json:"verdict"`
	What    string `json:"what"`
	Text    string `json:"text"`
}

const (
	good = "ok"
	note = "warn"
	bad  = "FAIL"
)

type doctor struct {
	db       *sqlx.DB
	prefix   string
	vendor   string
	findings []finding
}

func (d *doctor) say(verdict, what, format string, args ...any) {
	d.findings = append(d.findings, finding{verdict, what, fmt.Sprintf(format, args...)})
}

func (d *doctor) examine(ctx context.Context) {
	repo, err := repository.New(ctx, d.db, repository.WithPrefix(d.prefix), repository.WithRegion("INTLOCK_DOCTOR"), repository.WithoutStartCheck())
	if err != nil {
		d.say(bad, "server", "%v", err)
		return
	}
	defer repo.Close()
	d.vendor = repo.Vendor()
	d.server(ctx)
	d.tables(ctx)
	d.lock(ctx)
	d.clock(ctx)
	d.isolation(ctx)
	d.connections(ctx)
	d.pooler(ctx)
}

// server asks for its version, and how long an answer takes.
func (d *doctor) server(ctx context.Context) {
	query := "SELECT version()"
	if d.vendor == "sqlite" {
		query = "SELECT sqlite_version()"
	}
	var version string
	best := time.Hour
	for range 5 {
		begin := time.Now()
		if err := d.db.GetContext(ctx, &version, query); err != nil {
			d.say(bad, "server", "%v", err)
			return
		}
		best = min(best, time.Since(begin))
	}
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "PostgreSQL "), " (")
	verdict, advice := good, ""
	if best > 100*time.Millisecond {
		verdict, advice = note, "; a lease should be many times as long"
	}
	d.say(verdict, "server", "%s %s, a round trip takes %v%s", d.vendor, version, best.Round(10*time.Microsecond), advice)
}

func (d *doctor) tables(ctx context.Context) {
	err := schema.Check(ctx, d.db, d.prefix)
	switch {
	case err == nil:
		d.say(good, "tables", "the lock table, the token source and the guard fit")
	case errors.Is(err, schema.ErrMissing):
		d.say(bad, "tables", "%v\nrun: intlock schema apply", err)
	default:
		d.say(bad, "tables", "%v", err)
	}
}

// lock does what a program would, with the user's own rights.
func (d *doctor) lock(ctx context.Context) {
	try := func(tokens bool) (*registry.Hold, error) {
		opts := []repository.Option{repository.WithPrefix(d.prefix), repository.WithRegion("INTLOCK_DOCTOR"), repository.WithHolder(holder())}
		if tokens {
			opts = append(opts, repository.WithTokens())
		}
		repo, err := repository.New(ctx, d.db, opts...)
		if err != nil {
			return nil, err
		}
		defer repo.Close()
		locks, err := registry.New(repo)
		if err != nil {
			return nil, err
		}
		defer locks.Close(ctx)
		hold, err := locks.Obtain("doctor").TryLockFor(ctx, 5*time.Second)
		if err != nil {
			return nil, err
		}
		return hold, errors.Join(hold.Renew(ctx), hold.Unlock(ctx))
	}
	if _, err := try(false); err != nil {
		d.say(bad, "locks", "%v\nthe user needs SELECT, INSERT, UPDATE and DELETE on the lock table", err)
		return
	}
	d.say(good, "locks", "one was taken, renewed and given back")
	hold, err := try(true)
	if err != nil {
		d.say(note, "tokens", "%v\nonly programs that use fencing tokens need this", err)
		return
	}
	d.say(good, "tokens", "%d was drawn", hold.Token())
}

// clock compares the database's clock with ours. Leases go by the database's alone,
// so a difference does no harm; whoever reads both is confused by it.
func (d *doctor) clock(ctx context.Context) {
	query := map[string]string{
		"postgres": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
		"mysql":    "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
		"mariadb":  "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
		"sqlite":   "SELECT CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)",
	}[d.vendor]
	var millis int64
	begin := time.Now()
	if err := d.db.GetContext(ctx, &millis, query); err != nil {
		d.say(note, "clock", "%v", err)
		return
	}
	middle := begin.Add(time.Since(begin) / 2)
	off := time.UnixMilli(millis).Sub(middle).Round(time.Millisecond)
	switch {
	case off.Abs() > time.Minute:
		d.say(note, "clock", "the database's is %v from ours: synchronise them (locks go by the database's alone)", off)
	default:
		d.say(good, "clock", "the database's is %v from ours", off)
	}
}

func (d *doctor) isolation(ctx context.Context) {
	query := map[string]string{
		"postgres": "SELECT current_setting('default_transaction_isolation')",
		"mysql":    "SELECT @@transaction_isolation",
		"mariadb":  "SELECT @@tx_isolation",
	}[d.vendor]
	if query == "" {
		return
	}
	var level string
	if err := d.db.GetContext(ctx, &level, query); err != nil {
		d.say(note, "isolation", "%v", err)
		return
	}
	level = strings.ToLower(strings.ReplaceAll(level, "-", " "))
	if level == "serializable" {
		d.say(note, "isolation", "%s by default: lock calls are right, but conflicts are tried again more often; read committed is enough", level)
		return
	}
	d.say(good, "isolation", "%s", level)
}

// connections says how many the server has left.
func (d *doctor) connections(ctx context.Context) {
	var most, used int
	var err error
	switch d.vendor {
	case "postgres":
		err = d.db.QueryRowContext(ctx, "SELECT CAST(current_setting('max_connections') AS INTEGER), (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend')").Scan(&most, &used)
	case "mysql", "mariadb":
		var name string
		if err = d.db.GetContext(ctx, &most, "SELECT @@max_connections"); err == nil {
			err = d.db.QueryRowContext(ctx, "SHOW STATUS LIKE 'Threads_connected'").Scan(&name, &used)
		}
	default:
		var mode string
		if err = d.db.GetContext(ctx, &mode, "PRAGMA journal_mode"); err == nil && mode != "wal" {
			d.say(note, "journal", "journal_mode is %s: with WAL readers and the writer do not wait for each other", mode)
		}
		return
	}
	switch {
	case err != nil:
		d.say(note, "connections", "%v", err)
	case used*10 > most*8:
		d.say(note, "connections", "%d of %d are in use: a program that cannot connect loses its locks", used, most)
	default:
		d.say(good, "connections", "%d of %d are in use", used, most)
	}
}

// pooler finds one that gives each transaction another connection.
func (d *doctor) pooler(ctx context.Context) {
	if d.vendor != "postgres" {
		return
	}
	// Two of our connections that get one of the server's in turn, or one that gets
	// another when the first is busy with a transaction.
	pooled, err := func() (bool, error) {
		first, err := d.db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer first.Close()
		second, err := d.db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer second.Close()
		const backend = "SELECT pg_backend_pid()"
		var before, busy, after int
		if err := first.QueryRowContext(ctx, backend).Scan(&before); err != nil {
			return false, err
		}
		tx, err := second.BeginTx(ctx, nil)
		if err != nil {
			return false, err
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(ctx, backend).Scan(&busy); err != nil {
			return false, err
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second) // the pooler may have one connection only
		defer cancel()
		err = first.QueryRowContext(limited, backend).Scan(&after)
		return before == busy || before != after && err == nil, nil
	}()
	if err != nil {
		d.say(note, "pooler", "%v", err)
		return
	}
	if pooled {
		d.say(note, "pooler", "one in transaction mode is in between: statements are not prepared; wakeup/pglisten needs a connection past it")
		return
	}
	d.say(good, "pooler", "none in transaction mode was noticed")
}
