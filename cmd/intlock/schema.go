package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/intlock/intlock/schema"
)

var schemaCommand = &command{
	name:    "schema",
	summary: "print, make, check or remove the tables",
	usage:   "schema [flags] print VENDOR | apply | check | drop",
	text: `
  print VENDOR  prints the script for postgres, mysql, mariadb or sqlite; with -notify
                the trigger that lets a release wake who waits (postgres)
  apply         makes what is missing; what is there stays as it is. With -notify the
                trigger too
  check         says what does not fit, and how to mend it; it only reads
  drop          removes the tables, and with them all locks; needs -y

Exit status of check: 0 if all fits, 1 if not.`,
	flags: func(fs *flag.FlagSet, o *options) {
		databaseFlags(fs, o)
		fs.BoolVar(&o.notify, "notify", false, "the trigger for LISTEN and NOTIFY (postgres)")
		fs.BoolVar(&o.yes, "y", false, "yes, drop")
	},
	run: runSchema,
}

func runSchema(ctx context.Context, p program, o *options, args []string) error {
	if len(args) == 0 {
		return usageError("want print, apply, check or drop")
	}
	if args[0] == "print" {
		if len(args) != 2 {
			return usageError("print: want postgres, mysql, mariadb or sqlite")
		}
		text, err := schema.Script(args[1], o.prefix)
		if err == nil && o.notify {
			if args[1] != "postgres" {
				return usageError("-notify is for postgres")
			}
			text, err = schema.NotifyScript(o.prefix)
		}
		if err != nil {
			return usageError("%w", err)
		}
		fmt.Fprint(p.out, text)
		return nil
	}
	steps := map[string]func(context.Context, schema.DB, string) error{"apply": schema.Apply, "check": schema.Check, "drop": schema.Drop}
	step := steps[args[0]]
	switch {
	case step == nil:
		return usageError("unknown: %q; want print, apply, check or drop", args[0])
	case len(args) > 1:
		return usageError("unexpected argument %q", args[1])
	case args[0] == "drop" && !o.yes:
		return usageError("drop removes every lock, whoever holds it: say -y if you mean it")
	}
	db, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	err = step(ctx, db, o.prefix)
	if err == nil && args[0] == "apply" && o.notify {
		err = schema.ApplyNotify(ctx, db, o.prefix)
	}
	var mismatch *schema.MismatchError
	switch {
	case errors.As(err, &mismatch), errors.Is(err, schema.ErrMissing):
		return failure{exitFailed, err}
	case err != nil && strings.Contains(err.Error(), "prefix"):
		return usageError("%w", err)
	case err != nil:
		return failure{exitDatabase, err}
	}
	fmt.Fprintf(p.out, "%s: %s\n", args[0], map[string]string{"apply": "the tables are there", "check": "all fits", "drop": "the tables are gone"}[args[0]])
	return nil
}
