package sqlitewatch

import (
	"context"
	"database/sql"
	"time"
)

// When the version is read. A commit is written first and seen a little later,
// when it is on the disk: so after a write the looks go on, at a share of the
// time since then, from shortest up to longest. Whatever is not told of is seen
// after longest, and if that happens misses times in a row, by ticks from then on.
const (
	tick     = time.Millisecond
	shortest = 250 * time.Microsecond
	longest  = 50 * time.Millisecond
	share    = 4
	misses   = 3
)

// ear tells of writes to the file.
type ear interface {
	heard() <-chan struct{} // gets a token after each write
	close()
}

// watch wakes all when somebody has committed, at most once per tick, until
// nobody has waited for a while.
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
	read := func() (changed bool, err error) {
		var version int64
		if err := look.QueryRow().Scan(&version); err != nil {
			return false, err
		}
		changed, known = version != known, version
		return changed, nil
	}
	// The first read opens the file, and makes the log that is listened to.
	if _, err := read(); err != nil {
		return err
	}
	var heard <-chan struct{} // nil: read every tick
	if e := w.ear(ctx, conn); e != nil {
		defer e.close()
		heard = e.heard()
	}
	if _, err := read(); err != nil { // what was written before there was an ear
		return err
	}
	w.set(true) // before the waiters look again: then nothing is missed
	w.wake("")
	written, woken, missed := time.Now(), time.Now(), 0
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		told := false
		select {
		case <-timer.C:
		case <-heard:
			told, missed, written = true, 0, time.Now()
		case <-ctx.Done():
			return ctx.Err()
		}
		if early := tick - time.Since(woken); early > 0 { // seldom: the file is busy
			time.Sleep(early)
		}
		changed, err := read()
		if err != nil {
			return err
		}
		now := time.Now()
		if changed {
			woken = now
			w.wake("")
			if heard != nil && !told && now.Sub(written) > longest*share {
				if missed++; missed == misses {
					heard = nil
					w.setDeaf()
				}
			}
		}
		if !w.needed(now) {
			return nil
		}
		next := tick
		if heard != nil {
			next = min(max(now.Sub(written)/share, shortest), longest)
		}
		timer.Reset(next)
	}
}

// ear listens to the files of the database, or is nil if that is of no use.
func (w *Watcher) ear(ctx context.Context, conn *sql.Conn) ear {
	w.mu.Lock()
	deaf := w.deaf
	w.mu.Unlock()
	if deaf {
		return nil
	}
	var file string
	err := conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file)
	if err != nil || file == "" {
		return nil
	}
	e, err := w.listen([]string{file, file + "-wal"})
	if err != nil {
		return nil
	}
	return e
}

func (w *Watcher) setDeaf() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = true
}
