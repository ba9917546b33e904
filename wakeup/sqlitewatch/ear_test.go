//go:build unix

package sqlitewatch

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// silent is an ear to which nobody speaks, as on a file system of the network.
type silent struct{ nothing chan struct{} }

func (s silent) heard() <-chan struct{} { return s.nothing }
func (s silent) close()                 {}

// Commits are seen though nobody tells of them, soon by ticks alone.
func TestNobodyTells(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func([]string) (ear, error){
		"silent":      func([]string) (ear, error) { return silent{make(chan struct{})}, nil },
		"unsupported": func([]string) (ear, error) { return nil, errors.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := "file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
			open := func() *sql.DB {
				db, err := sql.Open("sqlite", dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				return db
			}
			writer := open()
			if _, err := writer.Exec("CREATE TABLE X (N INTEGER)"); err != nil {
				t.Fatal(err)
			}
			w := New(open())
			w.listen = listen
			ctx, cancel := context.WithCancel(t.Context())
			woken, stopped := make(chan struct{}, 1), make(chan struct{})
			w.Start(ctx, func(string) {
				select {
				case woken <- struct{}{}:
				default:
				}
			}, func() { close(stopped) })
			done := w.Await("key")
			<-woken // it watches
			for range misses + 2 {
				time.Sleep(longest*share + 50*time.Millisecond) // the watcher thinks that all is quiet
				select {
				case <-woken:
				default:
				}
				if _, err := writer.Exec("INSERT INTO X VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				select {
				case <-woken:
				case <-time.After(10 * time.Second):
					t.Fatal("a commit was not seen")
				}
			}
			w.mu.Lock()
			deaf := w.deaf
			w.mu.Unlock()
			if want := name == "silent"; deaf != want {
				t.Errorf("deaf = %v, want %v", deaf, want)
			}
			done()
			cancel()
			<-stopped
		})
	}
}
