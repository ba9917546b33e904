//go:build unix

package testdb

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main(m, map[string]func(){
		"ticks": func() {
			for i := 0; ; i++ {
				fmt.Println("tick", i)
				time.Sleep(5 * time.Millisecond)
			}
		},
		"fails": func() {
			fmt.Println("hello", os.Getenv("WHO"))
			os.Exit(5)
		},
		"inserts": func() {
			db, err := sql.Open(os.Getenv("DRIVER"), os.Getenv("DSN"))
			if err == nil {
				_, err = db.Exec("INSERT INTO seen VALUES (1)")
			}
			fmt.Println("inserted", err)
		},
		"connects": func() {
			_, err := net.Dial("tcp", os.Getenv("ADDR"))
			fmt.Println("connected", err)
			select {}
		},
		"owner": owner,
		"grandparent": func() {
			// A parent that dies outright: its child must not live on.
			p := Spawn(new(noTest), "connects", map[string]string{"ADDR": os.Getenv("ADDR")})
			p.WaitLine(new(noTest), "connected", soon)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		},
	})
}

// noTest is for a child that spawns: it has no *testing.T.
type noTest struct{ testing.TB }

func (*noTest) Helper()        {}
func (*noTest) Cleanup(func()) {}

func (*noTest) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (*noTest) Skipf(format string, args ...any)  { fmt.Printf(format+"\n", args...); os.Exit(0) }
func (*noTest) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...); os.Exit(1) }

const soon = 20 * time.Second

func TestSpawnWait(t *testing.T) {
	p := Spawn(t, "fails", map[string]string{"WHO": "world"})
	if line := p.Line(t, soon); line != "hello world" {
		t.Errorf("it said %q", line)
	}
	var exit *exec.ExitError
	if err := p.Wait(t, soon); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("Wait: %v, want status 5", err)
	}
}

func TestSpawnKill(t *testing.T) {
	p := Spawn(t, "ticks", nil)
	p.WaitLine(t, "tick ", soon)
	p.Kill()
	if err := syscall.Kill(p.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
	p.Kill() // harmless
}

func TestSpawnStopAndCont(t *testing.T) {
	p := Spawn(t, "ticks", nil)
	p.WaitLine(t, "tick ", soon)
	p.Stop(t)
	drain := func() (n int) {
		for quiet := false; !quiet; {
			select {
			case <-p.lines:
				n++
			case <-time.After(100 * time.Millisecond):
				quiet = true
			}
		}
		return n
	}
	drain()
	if n := drain(); n != 0 {
		t.Errorf("a stopped child said %d lines", n)
	}
	p.Cont(t)
	p.WaitLine(t, "tick ", soon)
	p.Stop(t)
	p.Kill() // reaches a stopped child
}

func TestSpawnOpensTheSameDatabase(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		run(t, db.DB, "CREATE TABLE seen (n INTEGER)")
		p := Spawn(t, "inserts", map[string]string{"DRIVER": db.Driver, "DSN": db.DSN})
		if line := p.Line(t, soon); line != "inserted <nil>" {
			t.Fatal(line)
		}
		if err := p.Wait(t, soon); err != nil {
			t.Fatal(err)
		}
		if n := text(t, db.DB, "SELECT COUNT(*) FROM seen"); n != "1" {
			t.Errorf("%s rows, want the child's 1", n)
		}
	})
}

func TestSpawnEndsWithItsParent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	Spawn(t, "grandparent", map[string]string{"ADDR": l.Addr().String()})
	// Its connection tells: a process number may stay, if nobody reaps it.
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the child outlives its parent: %v", err)
	}
}
