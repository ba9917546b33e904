// Package sqlitewatch wakes those who wait for a lock in an SQLite file, by
// watching for other connections' commits: a released lock is had by another
// process within about a millisecond instead of at its next poll.
//
//	db, err := sql.Open("sqlite", dsn)      // for the locks
//	watched, err := sql.Open("sqlite", dsn) // one connection, for the watcher alone
//	locks, err := registry.New(repo, registry.WithWakeUp(sqlitewatch.New(watched)))
//
// While somebody waits it reads PRAGMA data_version every millisecond, which
// takes about two microseconds and no lock, and changes when another connection,
// of this process or another, has committed. While nobody waits it does nothing.
// It works with every journal mode and file system that SQLite itself works with.
package sqlitewatch

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// Watcher implements registry.WakeUp. It serves one registry, which starts it
// and ends it.
type Watcher struct {
	db *sql.DB

	mu      sync.Mutex // guards the fields below; never held while the file is read
	wake    func(path string)
	waiting int           // how many Awaits are not done
	last    time.Time     // when the last one was done
	sees    bool          // the version is read every tick
	changed chan struct{} // gets a token when somebody begins to wait
}

// How often the version is read, how long it still is when nobody waits any more
// (contended locks come back), and the pause after an error.
const (
	tick  = time.Millisecond
	keep  = 500 * time.Millisecond
	pause = time.Second
)

// New returns a Watcher of the file behind db, of which it keeps one connection
// while somebody waits. So db must not be a pool that others want their
// connection from. New does not open the file, and nothing closes db.
func New(db *sql.DB) *Watcher { return &Watcher{db: db, changed: make(chan struct{}, 1)} }

// Start implements registry.WakeUp.
func (w *Watcher) Start(ctx context.Context, wake func(path string), stopped func()) {
	w.mu.Lock()
	w.wake = wake
	w.mu.Unlock()
	go func() {
		defer stopped()
		for ctx.Err() == nil {
			select {
			case <-w.changed:
			case <-ctx.Done():
				return
			}
			if err := w.watch(ctx); err != nil && ctx.Err() == nil {
				select { // waiters poll meanwhile
				case <-time.After(pause):
				case <-ctx.Done():
				}
				w.signal()
			}
		}
	}()
}

// Alive implements registry.WakeUp. A watcher that nobody needs is alive too: it
// looks as soon as somebody waits.
func (w *Watcher) Alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sees || w.waiting == 0
}

// Await implements registry.WakeUp.
func (w *Watcher) Await(path string) (done func()) {
	w.mu.Lock()
	w.waiting++
	sees := w.sees
	w.mu.Unlock()
	if sees {
		w.wake(path)
	} else {
		w.signal()
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waiting--
		w.last = time.Now()
	}
}

func (w *Watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // it is about to look
	}
}

// watch wakes all when somebody has committed, until nobody has waited for a
// while.
func (w *Watcher) watch(ctx context.Context) error {
	if !w.needed(time.Now()) {
		return nil
	}
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The reads do not end with ctx: a driver would watch it each time, and they
	// take no time.
	look, err := conn.PrepareContext(context.WithoutCancel(ctx), "PRAGMA data_version")
	if err != nil {
		return err
	}
	defer look.Close()
	defer w.set(false)
	known := int64(-1)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		var version int64
		if err := look.QueryRow().Scan(&version); err != nil {
			return err
		}
		if version != known {
			if known < 0 {
				w.set(true) // before the waiters look again: then nothing is missed
			}
			known = version
			w.wake("")
		}
		select {
		case now := <-ticker.C:
			if !w.needed(now) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watcher) set(sees bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sees = sees
}

func (w *Watcher) needed(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting > 0 || now.Sub(w.last) < keep
}
