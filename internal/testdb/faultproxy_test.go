package testdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/vendor"
)

// echo is a server that answers each line with itself and records it.
func echo(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				scan := bufio.NewScanner(conn)
				for scan.Scan() {
					lines <- scan.Text()
					_, _ = conn.Write([]byte(scan.Text() + "\n"))
				}
				lines <- "(end)"
			}()
		}
	}()
	return l.Addr().String(), lines
}

type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(soon))
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) ask(line string) (string, error) {
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	answer, err := c.in.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

func (c *client) mustAsk(t *testing.T, line string) {
	t.Helper()
	if got, err := c.ask(line); got != line || err != nil {
		t.Fatalf("asked %q, got %q, %v", line, got, err)
	}
}

func TestProxyForwardsAndCounts(t *testing.T) {
	addr, _ := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	for range 3 {
		c.mustAsk(t, "hello")
	}
	if n := p.RoundTrips(); n != 3 {
		t.Errorf("%d round trips, want 3", n)
	}
	p.ResetRoundTrips()
	if n := p.RoundTrips(); n != 0 {
		t.Errorf("%d round trips after the reset", n)
	}
}

func TestProxyLosesReply(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	p.LoseReply(2)
	c.mustAsk(t, "one")
	if got, err := c.ask("two"); err == nil {
		t.Errorf("got the reply %q that should be lost", got)
	}
	for _, want := range []string{"one", "two", "(end)"} {
		if got := <-heard; got != want {
			t.Errorf("the server heard %q, want %q", got, want)
		}
	}
	dial(t, p).mustAsk(t, "three") // once only
}

func TestProxyCutsAfterBytes(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	p.CutAfter(ToServer, 3)
	if _, err := c.ask("abcdef"); err == nil {
		t.Error("the connection was not cut")
	}
	if got := <-heard; got != "abc" { // Scanner hands out an unfinished last line
		t.Errorf("the server heard %q, want the first 3 bytes", got)
	}
	if n := p.Bytes(ToServer); n != 3 {
		t.Errorf("%d bytes counted, want the 3 that passed", n)
	}
	c = dial(t, p)
	p.CutAfter(ToClient, 3)
	if got, err := c.ask("abcdef"); got != "abc" || err == nil {
		t.Errorf("the client got %q, %v, want the first 3 bytes", got, err)
	}
}

func TestProxyBlackHole(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	c.mustAsk(t, "before")
	<-heard
	p.BlackHole()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := c.ask("lost"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("want no answer at all, got %v", err)
	}
	_ = c.Close()
	select {
	case got := <-heard:
		t.Errorf("%q came through a black hole", got)
	case <-time.After(100 * time.Millisecond):
	}
	p.Heal()
	if got := <-heard; got != "(end)" {
		t.Errorf("after Heal the server heard %q", got)
	}
	dial(t, p).mustAsk(t, "after")
}

func TestProxyDelays(t *testing.T) {
	addr, _ := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	p.Delay(ToClient, 200*time.Millisecond)
	began := time.Now()
	c.mustAsk(t, "slow")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("took %v, want at least 200ms", took)
	}
	p.Delay(ToClient, time.Hour) // must not hold up the end of the test
	_, _ = c.Write([]byte("never\n"))
}

func TestProxyResetsAndRefuses(t *testing.T) {
	addr, _ := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	c.mustAsk(t, "hello")
	p.Reset()
	if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a connection reset", err)
	}
	p.Refuse()
	if _, err := dial(t, p).ask("hello"); err == nil {
		t.Error("a refused connection answered")
	}
	p.Heal()
	c = dial(t, p)
	c.mustAsk(t, "hello")
	p.Cut()
	if _, err := c.ask("hello"); err == nil {
		t.Error("a cut connection answered")
	}
}

// execOnce executes on one connection. On a pool, lib/pq's error for a lost
// connection makes database/sql execute the statement again on another.
func execOnce(ctx context.Context, db *DB, query string, args ...any) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, query, args...)
	return err
}

// One statement without arguments is one round trip in every driver; if its
// reply is lost, the row is there all the same.
func TestProxyBeforeDatabase(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		p := db.Proxy(t)
		run(t, db.DB, "CREATE TABLE seen (n INTEGER)")
		through := db.Through(t, p)
		through.SetMaxOpenConns(1)
		run(t, through.DB, "INSERT INTO seen VALUES (1)")
		p.ResetRoundTrips()
		for range 3 {
			run(t, through.DB, "INSERT INTO seen VALUES (1)")
		}
		if n := p.RoundTrips(); n != 3 {
			t.Errorf("%d round trips for 3 statements", n)
		}
		p.LoseReply(1)
		if err := execOnce(testContext(t), through, "INSERT INTO seen VALUES (1)"); err == nil {
			t.Error("the reply was not lost")
		}
		if n := text(t, db.DB, "SELECT COUNT(*) FROM seen"); n != "5" {
			t.Errorf("%s rows, want 5: the lost reply's statement was done", n)
		}
		run(t, through.DB, "INSERT INTO seen VALUES (1)")
		p.BlackHole()
		// lib/pq does not return when the context ends: it asks the server to
		// cancel and waits for its answer. Only the connection's end ends it.
		ended := make(chan error, 1)
		go func() {
			_, err := through.ExecContext(context.Background(), "INSERT INTO seen VALUES (1)")
			ended <- err
		}()
		select {
		case err := <-ended:
			t.Errorf("an answer out of a black hole: %v", err)
		case <-time.After(200 * time.Millisecond):
			p.Refuse()
			p.Cut()
			<-ended
		}
	})
}

// The bytes of an operation tell where it can be cut: before its last byte the
// server has not understood it, and while it answers, it has done it.
func TestCutPointsOfAStatement(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		p := db.Proxy(t)
		through := db.Through(t, p)
		through.SetMaxOpenConns(1)
		run(t, db.DB, "CREATE TABLE seen (n INTEGER)")
		insert := func() error { return execOnce(testContext(t), through, "INSERT INTO seen VALUES (1)") }
		ping := func() { // on a connection that is open when it returns
			if err := through.PingContext(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		ping()
		p.ResetBytes()
		if err := insert(); err != nil {
			t.Fatal(err)
		}
		whole := [2]int{ToServer: p.Bytes(ToServer), ToClient: p.Bytes(ToClient)}
		if whole[ToServer] < len("INSERT INTO seen VALUES (1)") || whole[ToClient] < 5 {
			t.Fatalf("%d bytes to the server, %d to the client", whole[ToServer], whole[ToClient])
		}
		want := 1
		for d, total := range whole {
			for _, n := range []int{0, 1, total / 2, total - 1} {
				ping()
				p.CutAfter(Direction(d), n)
				if err := insert(); err == nil {
					t.Errorf("direction %d, cut after %d of %d bytes: it succeeded", d, n, total)
				}
				if Direction(d) == ToClient {
					want++
				}
				if got := text(t, db.DB, "SELECT COUNT(*) FROM seen"); got != fmt.Sprint(want) {
					t.Errorf("direction %d, cut after %d of %d bytes: %s rows, want %d", d, n, total, got, want)
				}
			}
		}
		ping()
		p.ResetBytes()
		if err := insert(); err != nil || p.Bytes(ToServer) != whole[ToServer] {
			t.Errorf("%v without a fault, %d bytes, want the %d of before", err, p.Bytes(ToServer), whole[ToServer])
		}
	})
}

// A reset ends the request of a real driver too, and the next one is served.
func TestResetBeforeDatabase(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		p := db.Proxy(t)
		through := db.Through(t, p)
		if err := through.PingContext(testContext(t)); err != nil {
			t.Fatal(err)
		}
		h := p.HoldReply(1)
		ended := make(chan error, 1)
		go func() { ended <- execOnce(t.Context(), through, "SELECT 1") }()
		h.Wait(t, soon)
		p.Reset()
		if err := <-ended; err == nil {
			t.Error("it was answered")
		}
		h.Release()
		run(t, through.DB, "SELECT 1")
	})
}

func TestAddrOfDSN(t *testing.T) {
	for want, db := range map[string]*DB{
		"db.example:5432": {Vendor: vendor.Postgres, DSN: "postgres://u:p@db.example/x"},
		"127.0.0.1:7":     {Vendor: vendor.MySQL, DSN: "root@tcp(127.0.0.1:7)/x"},
		"":                {Vendor: vendor.MariaDB, DSN: "root@unix(/run/sock)/x"},
	} {
		if got := db.Addr(); got != want {
			t.Errorf("%s: %q, want %q", db.DSN, got, want)
		}
	}
}
