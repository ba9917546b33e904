//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/testdb/dbserver"
	"github.com/intlock/intlock/internal/vendor"
)

// bringer brings up the servers of one run: those of this machine in a house,
// the others in Docker.
type bringer struct {
	house   *dbserver.House
	docker  bool     // use it even where servers are installed
	compose *compose // nil if it is not needed
}

// up brings up the wanted vendors, all at once.
func (b *bringer) up(ctx context.Context, wanted []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	plans, missing := []*dbserver.Plan(nil), []string(nil)
	for _, name := range wanted {
		if p := dbserver.Find(ctx, name, b.house.Cache); p != nil && !b.docker {
			plans = append(plans, p)
		} else {
			missing = append(missing, name)
		}
	}
	fetch, err := b.fetchers(ctx, missing)
	if err != nil {
		return err
	}
	if !b.docker && slices.Contains(wanted, vendor.Postgres) && !has(pooler) && has("apt-get") && os.Geteuid() == 0 {
		fetch = append(fetch, fetcher{started: true, fetch: func(ctx context.Context) error { return b.aptInstall(ctx, []string{pooler}) }})
	}

	errs := make(chan error)
	var wg sync.WaitGroup
	task := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				errs <- err
				cancel() // the others need not finish
			}
		})
	}
	launch := func(p *dbserver.Plan) {
		task(func() error { _, err := b.house.Launch(ctx, p); return err })
	}
	for _, p := range plans {
		launch(p)
	}
	for _, f := range fetch {
		task(func() error {
			if err := f.fetch(ctx); err != nil || f.started {
				return err
			}
			for _, name := range f.vendors {
				p := dbserver.Find(ctx, name, b.house.Cache)
				if p == nil {
					return fmt.Errorf("%s was installed and still is not found", name)
				}
				launch(p)
			}
			return nil
		})
	}
	go func() { wg.Wait(); close(errs) }()
	var all []error
	for err := range errs {
		if len(all) == 0 || !errors.Is(err, context.Canceled) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// names lists the servers with their versions, in the usual order.
func (b *bringer) names() []string {
	var names []string
	for _, name := range vendor.All() {
		for _, s := range b.house.Servers() {
			if s.Vendor == name {
				names = append(names, name+" "+s.Version)
			}
		}
		if b.compose != nil && slices.Contains(b.compose.vendors, name) {
			names = append(names, name+" (Docker)")
		}
	}
	return names
}

// env is what the command finds in its environment.
func (b *bringer) env() []string {
	var env []string
	for _, s := range b.house.Servers() {
		env = append(env, testdb.DSNEnv(s.Vendor)+"="+s.DSN, testdb.LogEnv(s.Vendor)+"="+s.Log)
	}
	if b.compose != nil {
		env = append(env, b.compose.env()...)
	}
	slices.Sort(env)
	return env
}

// withoutPrivate adds to the vendors in testdb.SkipPrivateEnv those that only
// Docker has: testdb.Private cannot break a server in there.
func (b *bringer) withoutPrivate(ctx context.Context, asked string) []string {
	if b.compose == nil {
		return nil
	}
	var absent []string
	for _, name := range b.compose.vendors {
		if dbserver.Find(ctx, name, b.house.Cache) == nil {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	say("%s: not on this machine itself, so tests that break a server of their own are left out", strings.Join(absent, ", "))
	if asked != "" {
		absent = append(absent, asked)
	}
	return []string{testdb.SkipPrivateEnv + "=" + strings.Join(absent, ",")}
}

// close ends everything and removes it.
func (b *bringer) close() {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.house.Close(); err != nil {
			say("%v", err)
		}
	})
	if b.compose != nil {
		wg.Go(b.compose.down)
	}
	wg.Wait()
}
