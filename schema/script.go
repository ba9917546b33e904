package schema

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

//go:embed *.sql
var files embed.FS

type scriptKind string

// The values are what stands before the vendor in the file's name.
const (
	creates  scriptKind = ""
	drops    scriptKind = "drop-"
	notifies scriptKind = "notify-"
)

// Script returns the script that creates the tables: the file <vendor>.sql
// with another prefix. It may be run again. vendor is "postgres",
// "mysql", "mariadb" or "sqlite"; prefix is "INT_" by default and may have a
// schema part, as in "app.INT_", which must exist.
//
// Every statement ends with a semicolon at the end of a line, and no other
// line ends with one.
func Script(vendor, prefix string) (string, error) { return script(vendor, prefix, creates) }

// DropScript returns the script that drops what Script creates, if it exists.
func DropScript(vendor, prefix string) (string, error) { return script(vendor, prefix, drops) }

// NotifyScript returns the script of a trigger on the lock table of PostgreSQL:
// the deletion of a row, by whomever, then wakes those who wait for the lock and
// listen, see package wakeup/pglisten. It is for tables on which others than
// this library give locks back, such as Spring services; the library does it by
// itself, see repository.WithNotify. It may be run again, but takes an exclusive
// lock of the table for a moment. DropScript drops it too.
func NotifyScript(prefix string) (string, error) { return script(vendor.Postgres, prefix, notifies) }

func script(name, prefix string, k scriptKind) (string, error) {
	if !slices.Contains(vendor.All(), name) {
		return "", fmt.Errorf("schema: no script for %q: want one of %s", name, strings.Join(vendor.All(), ", "))
	}
	if err := vendor.CheckPrefix(prefix); err != nil {
		return "", fmt.Errorf("schema: script for %s: %w", name, err)
	}
	return render(name, nameOf(vendor.Table(prefix), prefix), k), nil
}

// render replaces the default names, all of which begin with the lock table's.
// Vendor and prefix have been checked.
func render(name string, lock tableName, k scriptKind) string {
	text, err := files.ReadFile(string(k) + name + ".sql")
	if err != nil {
		panic("schema: no script for a supported vendor: " + err.Error()) // a build without its files
	}
	const constraint = "CONSTRAINT "
	// One pass: what was put in is not replaced again.
	return strings.NewReplacer(
		constraint+vendor.Table(vendor.DefaultPrefix), constraint+lock.table, // has no schema part
		vendor.Table(vendor.DefaultPrefix), lock.sql,
	).Replace(string(text))
}

// statements splits a script of this package. It knows only what the scripts
// keep to, and a test holds them to it: a comment has its line to itself, a
// statement ends with a semicolon at the end of a line.
func statements(script string) []string {
	var (
		all  []string
		open []string
	)
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, " \r\n")
		if line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		last, ends := strings.CutSuffix(line, ";")
		open = append(open, last)
		if ends {
			all = append(all, strings.Join(open, "\n"))
			open = nil
		}
	}
	if len(open) > 0 {
		all = append(all, strings.Join(open, "\n"))
	}
	return all
}
