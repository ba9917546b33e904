//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// house is one run: its folder, and the servers that live in it.
type house struct {
	dir     string   // ends with the run
	lock    *os.File // held while the run lives, so that a later run can tell
	cache   string   // stays: MySQL's files and initialised data folders
	durable bool
	docker  bool

	// start hands a function to the main thread; see main's init.
	start chan func()

	mu      sync.Mutex
	running []*running
	compose *compose
}

func newHouse(durable, docker bool) (*house, error) {
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	base, err := scratch()
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return nil, err
	}
	h := &house{dir: dir, cache: cache, durable: durable, docker: docker, start: make(chan func())}
	// The servers' own users pass through here to their own folders.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// Locked first and named afterwards, or a sweep beside us could find the
	// file unlocked.
	if h.lock, err = lockFile(filepath.Join(dir, "unnamed"), false); err == nil {
		err = os.Rename(h.lock.Name(), filepath.Join(dir, "lock"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// up brings up the wanted vendors, all at once, and returns what the command
// finds in its environment.
func (h *house) up(ctx context.Context, wanted []string) ([]string, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.upAll(ctx, cancel, wanted) }()
	for {
		select {
		case f := <-h.start:
			f()
		case err := <-done:
			return h.env(), err
		}
	}
}

func (h *house) upAll(ctx context.Context, cancel context.CancelFunc, wanted []string) error {
	plans, missing := map[string]*plan{}, []string(nil)
	for _, name := range wanted {
		if p := find(ctx, name, h.cache); p != nil && !h.docker {
			plans[name] = p
		} else {
			missing = append(missing, name)
		}
	}
	fetch, err := h.fetchers(ctx, missing)
	if err != nil {
		return err
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
	for name, p := range plans {
		task(func() error { return h.launch(ctx, name, p) })
	}
	for _, f := range fetch {
		task(func() error {
			if err := f.fetch(ctx); err != nil || f.started {
				return err
			}
			for _, name := range f.vendors {
				p := find(ctx, name, h.cache)
				if p == nil {
					return fmt.Errorf("%s was installed and still is not found", name)
				}
				task(func() error { return h.launch(ctx, name, p) })
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
func (h *house) names() []string {
	var names []string
	for _, name := range vendor.All() {
		for _, r := range h.running {
			if r.vendor == name {
				names = append(names, name+" "+r.version)
			}
		}
		if h.compose != nil && slices.Contains(h.compose.vendors, name) {
			names = append(names, name+" (Docker)")
		}
	}
	return names
}

func (h *house) env() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var env []string
	for _, r := range h.running {
		env = append(env, testdb.DSNEnv(r.vendor)+"="+r.dsn, testdb.LogEnv(r.vendor)+"="+r.log)
	}
	if h.compose != nil {
		env = append(env, h.compose.env()...)
	}
	slices.Sort(env)
	return env
}

// close ends the servers, quickly since nobody will want their data, and
// removes their files.
func (h *house) close() {
	var wg sync.WaitGroup
	for _, r := range h.running {
		wg.Go(r.stop)
	}
	if h.compose != nil {
		wg.Go(h.compose.down)
	}
	wg.Wait()
	if err := os.RemoveAll(h.dir); err != nil {
		say("%v", err)
	}
	h.lock.Close()
}
