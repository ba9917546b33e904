// Package sqlitewatch wakes those who wait for a lock in an SQLite file, by
// watching for other connections' commits: a released lock is had by another
// process within about a millisecond instead of at its next poll.
//
//	db, err := sql.Open("sqlite", dsn)      // for the locks
//	watched, err := sql.Open("sqlite", dsn) // one connection, for the watcher alone
//	locks, err := registry.New(repo, registry.WithWakeUp(sqlitewatch.New(watched)))
//
// While somebody waits it reads PRAGMA data_version, which takes some microseconds
// and no lock, and changes when another connection, of this process or another,
// has committed. When to read it, the kernel says on Linux (inotify): next to
// nothing happens while nobody writes to the file. Elsewhere, and where the file
// system does not tell of writes, it is read every millisecond, which costs some
// per cent of a processor. While nobody waits it does nothing.
//
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
	sees    bool          // the version is read
	deaf    bool          // writes are not told of: read every tick
	changed chan struct{} // gets a token when somebody begins to wait

	listen func(files []string) (ear, error)
}

// How long the version is read when nobody waits any more (contended locks come
// back), and the pause after an error.
const (
	keep  = 500 * time.Millisecond
	pause = time.Second
)

// New returns a Watcher of the file behind db, of which it keeps one connection
// while somebody waits. So db must not be a pool that others want their
// connection from. New does not open the file, and nothing closes db.
func New(db *sql.DB) *Watcher {
	return &Watcher{db: db, changed: make(chan struct{}, 1), listen: listen}
}

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
