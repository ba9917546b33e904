//go:build unix

package testdb

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// eachPrivate runs f with a server of each vendor that has one.
func eachPrivate(t *testing.T, f func(t *testing.T, s *PrivateServer)) {
	for _, name := range Vendors() {
		t.Run(name, func(t *testing.T) { f(t, Private(t, name)) })
	}
}

func TestPrivateIsDurableAndUnprivileged(t *testing.T) {
	settings := map[string]map[string]string{
		vendor.Postgres: {"SHOW fsync": "on", "SHOW synchronous_commit": "on", "SHOW full_page_writes": "on"},
		vendor.MySQL:    {"SELECT @@innodb_flush_log_at_trx_commit": "1", "SELECT @@innodb_doublewrite": "ON", "SELECT @@sync_binlog": "1"},
		vendor.MariaDB:  {"SELECT @@innodb_flush_log_at_trx_commit": "1", "SELECT @@innodb_doublewrite": "1"},
	}
	eachPrivate(t, func(t *testing.T, s *PrivateServer) {
		db := s.Open(t)
		for query, want := range settings[db.Vendor] {
			if got := text(t, db.DB, query); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		for _, pid := range processesIn(t, filepath.Dir(s.daemon.Log)) {
			info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			if err != nil {
				continue // it has ended
			}
			if info.Sys().(*syscall.Stat_t).Uid == 0 {
				t.Errorf("process %d runs as root", pid)
			}
		}
		if other := s.Open(t); other.Name == db.Name {
			t.Error("two databases of one name")
		}
	})
}

func TestPrivateKeepsWhatWasCommitted(t *testing.T) {
	eachPrivate(t, func(t *testing.T, s *PrivateServer) {
		db := s.Open(t)
		run(t, db.DB, "CREATE TABLE kept (n INTEGER)")
		for i, mode := range []StopMode{Fast, Immediate, Kill} {
			run(t, db.DB, "INSERT INTO kept VALUES (1)")
			// A client that does not leave, and has not committed.
			tx, err := db.Again(t).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO kept VALUES (2)"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s.Stop(t, mode)
			down := time.Since(began)
			if left := processesIn(t, filepath.Dir(s.daemon.Log)); len(left) > 0 {
				t.Errorf("%v: processes %v are still there", mode, left)
			}
			if conn, err := net.Dial("tcp", db.Addr()); err == nil {
				conn.Close()
				t.Errorf("%v: somebody listens on the server's port", mode)
			}
			began = time.Now()
			s.Start(t)
			t.Logf("%v: %v to stop, %v to start", mode, down, time.Since(began))
			if err := tx.Commit(); err == nil {
				t.Errorf("%v: a transaction outlived its server", mode)
			}
			if got, want := text(t, db.DB, "SELECT COUNT(*) FROM kept WHERE n = 1"), fmt.Sprint(i+1); got != want {
				t.Errorf("%v: %s rows, want the %s committed ones", mode, got, want)
			}
			if got := text(t, db.DB, "SELECT COUNT(*) FROM kept WHERE n = 2"); got != "0" {
				t.Errorf("%v: %s rows were never committed", mode, got)
			}
		}
		s.Restart(t, Kill)
		run(t, db.DB, "INSERT INTO kept VALUES (1)")
	})
}

func TestPrivateKnowsItsLog(t *testing.T) {
	s := Private(t, vendor.Postgres)
	db := s.Open(t)
	mark := db.LogMark(t)
	s.Restart(t, Kill)
	if found := mark.NewErrors(t); len(found) != 0 {
		t.Errorf("errors about this database: %q", found)
	}
	if _, err := db.ExecContext(testContext(t), "SELECT nonsense"); err == nil {
		t.Error("nonsense was understood")
	}
	if found := mark.NewErrors(t); len(found) != 1 {
		t.Errorf("want the one error of this database, got %q", found)
	}
}

func TestPrivateIsUpOrDown(t *testing.T) {
	s := Private(t, vendor.Postgres)
	if err := s.daemon.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	s.Stop(t, Fast)
	for _, mode := range []StopMode{Fast, Immediate, Kill} {
		if err := s.daemon.Stop(mode); err == nil {
			t.Errorf("%v: it was stopped twice", mode)
		}
	}
	s.Start(t)
	s.Open(t)
}

func TestPrivateEndsWithItsTest(t *testing.T) {
	skipIfIn(t, vendor.Postgres, SkipEnv)
	skipIfIn(t, vendor.Postgres, SkipPrivateEnv)
	for _, state := range []string{"running", "stopped", "killed"} {
		var dir string
		t.Run(state, func(t *testing.T) {
			s := Private(t, vendor.Postgres)
			dir = s.house()
			db := s.Open(t)
			if _, err := db.Begin(); err != nil {
				t.Fatal(err)
			}
			switch state {
			case "stopped":
				s.Stop(t, Fast)
			case "killed":
				s.Stop(t, Kill)
			}
		})
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the folder: %v", state, err)
		}
		if left := processesIn(t, dir); len(left) > 0 {
			t.Errorf("%s: processes %v are still there", state, left)
		}
	}
}

// A test binary may be killed, or end by os.Exit without any clean-up, as it
// does when it times out: the child does that on SIGTERM.
func TestPrivateEndsWithItsProcess(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			t.Run(name+" "+end.String(), func(t *testing.T) {
				skipIfIn(t, name, SkipEnv)
				skipIfIn(t, name, SkipPrivateEnv)
				p := Spawn(t, "owner", map[string]string{"VENDOR": name})
				dir := p.WaitLine(t, "house ", privateTimeout)
				if len(processesIn(t, dir)) == 0 && canSeeProcesses {
					t.Error("no process of the server: this test looks in the wrong place")
				}
				p.Signal(t, end)
				_ = p.Wait(t, soon)
				for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
					_, err := os.Stat(dir)
					left := processesIn(t, dir)
					if os.IsNotExist(err) && len(left) == 0 {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("the folder %s: %v; processes %v", dir, err, left)
					}
				}
			})
		}
	}
}

// owner is a child with a private server that has work in progress.
func owner() {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	t := new(noTest)
	s := Private(t, os.Getenv("VENDOR"))
	db := s.Open(t)
	if _, err := db.Exec("CREATE TABLE busy (n INTEGER)"); err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		for {
			_, _ = db.Exec("INSERT INTO busy VALUES (1)")
		}
	}()
	fmt.Println("house", s.house())
	<-terminated
	os.Exit(2)
}

func TestPrivateLeftOut(t *testing.T) {
	for name, variable := range map[string]string{vendor.SQLite: "", vendor.MySQL: SkipEnv, vendor.MariaDB: SkipPrivateEnv} {
		ran := false
		t.Run(name, func(t *testing.T) {
			if variable != "" {
				t.Setenv(variable, name)
			}
			Private(t, name)
			ran = true
		})
		if ran {
			t.Errorf("a private %s was not left out", name)
		}
	}
}

// house is the folder with everything of the server.
func (s *PrivateServer) house() string { return filepath.Dir(filepath.Dir(s.daemon.Log)) }

var canSeeProcesses = func() bool { _, err := os.Stat("/proc/self/cwd"); return err == nil }()

// processesIn lists the processes that work in a folder or below it; a dead
// one that nobody has reaped works nowhere. It needs /proc.
func processesIn(t *testing.T, dir string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, link := range links {
		if where, err := os.Readlink(link); err == nil && strings.HasPrefix(where, dir+"/") {
			var pid int
			_, _ = fmt.Sscanf(link, "/proc/%d/cwd", &pid)
			found = append(found, pid)
		}
	}
	return found
}
