package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

// command is one of the things that intlock does.
type command struct {
	name    string
	summary string // in the list
	usage   string // what follows "intlock "
	text    string // the help
	rest    bool   // what follows the first argument is not for us: run
	flags   func(*flag.FlagSet, *options)
	run     func(ctx context.Context, p program, o *options, args []string) error
}

func commands() []*command {
	return []*command{runCommand, lsCommand, showCommand, watchCommand, releaseCommand, renewCommand, pruneCommand,
		schemaCommand, doctorCommand, completionCommand}
}

func find(name string) *command {
	all := commands()
	if i := slices.IndexFunc(all, func(c *command) bool { return c.name == name }); i >= 0 {
		return all[i]
	}
	if name == "docs" { // not listed: it writes docs/cli.md
		return docsCommand
	}
	return nil
}

func (c *command) flagSet(o *options) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if c.flags != nil {
		c.flags(fs, o)
	}
	return fs
}

// execute parses the arguments. Flags may stand before and behind others, but for
// run, whose command has flags of its own.
func (c *command) execute(ctx context.Context, p program, args []string) error {
	var o options
	fs := c.flagSet(&o)
	var plain []string
	for {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			c.help(p.out)
			return nil
		}
		if err != nil {
			return usageError("%w", err)
		}
		ended := len(args) > fs.NArg() && args[len(args)-fs.NArg()-1] == "--"
		args = fs.Args()
		if len(args) == 0 {
			break
		}
		if ended || c.rest && len(plain) > 0 {
			plain = append(plain, args...)
			break
		}
		plain, args = append(plain, args[0]), args[1:]
		if c.rest && len(args) > 0 && args[0] != "--" && !strings.HasPrefix(args[0], "-") {
			plain = append(plain, args...)
			break
		}
	}
	return c.run(ctx, p, &o, plain)
}

// help prints a command's help.
func (c *command) help(to io.Writer) {
	fmt.Fprintf(to, "usage: intlock %s\n\n%s\n", c.usage, strings.TrimSpace(c.text))
	if text := c.flagText(); text != "" {
		fmt.Fprintf(to, "\nFlags:\n%s", text)
	}
}

// flagText lists the flags, one line each.
func (c *command) flagText() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	c.flagSet(new(options)).VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		if name != "" {
			name = " " + name
		}
		if !strings.Contains(usage, "(default") && f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  -%s%s\t%s\n", f.Name, name, usage)
	})
	w.Flush()
	return out.String()
}

const about = `intlock runs programs under locks that are rows of an SQL database, and shows and
mends what is in the lock table.

The database is -db, or INTLOCK_DB, which keeps a password out of the list of
processes:

  postgres://user:password@host:5432/database
  mysql://user:password@host:3306/database    (MySQL and MariaDB)
  sqlite:/path/to/file

The lock table is made by ` + "`intlock schema apply`" + `.`

// overview lists the commands.
func overview(to io.Writer) {
	fmt.Fprintf(to, "usage: intlock COMMAND ...\n\n%s\n\nCommands:\n", about)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s\t%s\n", c.name, c.summary)
	}
	w.Flush()
	fmt.Fprintf(to, "\n`intlock help COMMAND` says more about one of them.\n%s", statusText)
}

const statusText = `
Exit status: 0 for success, 1 for a failure, 2 for a wrong command line, 69 if the
database cannot be used; run has more.
`

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return "intlock " + info.Main.Version
	}
	return "intlock (devel)"
}
