//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// fetcher brings servers that are not on this machine.
type fetcher struct {
	vendors []string
	fetch   func(context.Context) error
	started bool // they run when fetch returns, and need no launch
}

// packages are Debian's. The core packages are MariaDB without the service
// that mariadb-server would set up; the client's has a program that the
// server's initialisation calls.
var packages = map[string][]string{
	vendor.Postgres: {"postgresql"},
	vendor.MariaDB:  {"mariadb-server-core", "mariadb-client-core"},
	pooler:          {pooler},
}

// pooler is no server; one test starts its own.
const pooler = "pgbouncer"

// fetchers decides where each missing server comes from.
func (b *bringer) fetchers(ctx context.Context, missing []string) ([]fetcher, error) {
	var install, unpack, elsewhere []string
	debian := has("apt-get") && has("dpkg")
	for _, name := range missing {
		switch {
		case b.docker:
			elsewhere = append(elsewhere, name)
		case name == vendor.MySQL && debian && debianMirror(ctx) != "":
			unpack = append(unpack, name)
		case packages[name] != nil && debian && os.Geteuid() == 0:
			install = append(install, name)
		default:
			elsewhere = append(elsewhere, name)
		}
	}

	var all []fetcher
	if len(install) > 0 {
		all = append(all, fetcher{vendors: install, fetch: func(ctx context.Context) error { return b.aptInstall(ctx, install) }})
	}
	if len(unpack) > 0 {
		all = append(all, fetcher{vendors: unpack, fetch: b.unpackMySQL})
	}
	if len(elsewhere) > 0 {
		c, err := newCompose(ctx, elsewhere)
		if err != nil {
			return nil, cannot(elsewhere, err)
		}
		b.compose = c
		all = append(all, fetcher{vendors: elsewhere, fetch: c.up, started: true})
	}
	return all, nil
}

func has(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// cannot is the message for a machine on which we can do nothing ourselves.
func cannot(names []string, dockerErr error) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: not on this machine, and Docker Compose cannot bring it either (%v). One of these helps:", strings.Join(names, ", "), dockerErr)
	if has("apt-get") && os.Geteuid() != 0 {
		var list []string
		for _, name := range names {
			list = append(list, packages[name]...)
		}
		if len(list) > 0 {
			fmt.Fprintf(&text, "\n  sudo apt-get install -y %s", strings.Join(list, " "))
		}
	}
	text.WriteString("\n  start Docker and run the same command again")
	for _, name := range names {
		fmt.Fprintf(&text, "\n  export %s=...   (a server of yours)", testdb.DSNEnv(name))
	}
	fmt.Fprintf(&text, "\n  export %s=%s   (leave out)", testdb.SkipEnv, strings.Join(names, ","))
	return errors.New(text.String())
}
