package testdb

import (
	"fmt"
	"net"
	"testing"
	"time"
)

func mustHear(t *testing.T, heard <-chan string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("the server heard %q, want %q", got, want)
			}
		case <-time.After(soon):
			t.Fatalf("the server did not hear %q", want)
		}
	}
}

func awaitBytes(t *testing.T, p *Proxy, d Direction, n int) {
	t.Helper()
	for deadline := time.Now().Add(soon); p.Bytes(d) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes came in direction %d, want %d", p.Bytes(d), d, n)
		}
	}
}

// The client may close in peace, or its machine may reset the connection: the
// server hears what it said all the same, later, and then its end.
func TestHeldRequestOutlivesItsClient(t *testing.T) {
	addr, heard := echo(t)
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%v", reset), func(t *testing.T) {
			p := NewProxy(t, addr)
			c := dial(t, p)
			h := p.HoldRequest(2)
			c.mustAsk(t, "one")
			_, _ = c.Write([]byte("two\n"))
			h.Wait(t, soon)
			if reset { // may overtake what is behind
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
			} else {
				_, _ = c.Write([]byte("behind it\n"))
			}
			_ = c.Close()
			dial(t, p).mustAsk(t, "another") // passes
			p.Heal()                         // does not release
			h.Release()
			mustHear(t, heard, "one", "another", "two")
			if !reset {
				mustHear(t, heard, "behind it")
			}
			mustHear(t, heard, "(end)")
		})
		mustHear(t, heard, "(end)") // of "another"
	}
}

// A reply that cannot be delivered does not take along what its client sent.
func TestHeldRequestOutlivesAFailedReply(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	reply := p.HoldReply(1)
	_, _ = c.Write([]byte("one\n"))
	reply.Wait(t, soon)
	request := p.HoldRequest(1)
	_, _ = c.Write([]byte("two\n"))
	request.Wait(t, soon)
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	reply.Release()
	awaitBytes(t, p, ToClient, len("one\n"))
	request.Release()
	mustHear(t, heard, "one", "two", "(end)")
}

// What came before a hold and got no reply is no part of the request.
func TestHeldRequestBehindUnansweredBytes(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	_, _ = c.Write([]byte("on"))
	awaitBytes(t, p, ToServer, len("on"))
	h := p.HoldRequest(1)
	_, _ = c.Write([]byte("e\n"))
	h.Wait(t, soon)
	h.Release()
	mustHear(t, heard, "one")
}

func TestHeldReply(t *testing.T) {
	addr, heard := echo(t)
	p := NewProxy(t, addr)
	c := dial(t, p)
	h := p.HoldReply(2)
	c.mustAsk(t, "one")
	answered := make(chan string, 1)
	go func() {
		got, err := c.ask("two")
		answered <- fmt.Sprint(got, err)
	}()
	h.Wait(t, soon)
	mustHear(t, heard, "one", "two")
	dial(t, p).mustAsk(t, "another")
	select {
	case got := <-answered:
		t.Errorf("%q was not held back", got)
	default:
	}
	h.Release()
	if got := <-answered; got != "two<nil>" {
		t.Errorf("late came %q", got)
	}
	c.mustAsk(t, "three")
}

func TestHeldIsLostAtTheEnd(t *testing.T) {
	addr, heard := echo(t)
	t.Run("inner", func(t *testing.T) {
		p := NewProxy(t, addr)
		h := p.HoldRequest(1)
		c := dial(t, p)
		_, _ = c.Write([]byte("never\n"))
		h.Wait(t, soon)
	})
	mustHear(t, heard, "(end)")
}

// A statement reaches the database after its client has given up, closed its
// connection and done something else. It takes two requests with arguments.
func TestLateStatementIsExecuted(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		p := db.Proxy(t)
		run(t, db.DB, "CREATE TABLE seen (n INTEGER)")
		through := db.Through(t, p)
		through.SetMaxOpenConns(1)
		for requests, args := range map[int][]any{1: nil, 2: {1}} {
			query := "INSERT INTO seen VALUES (1)"
			if len(args) > 0 {
				query = "INSERT INTO seen SELECT 1 WHERE 1 = " + map[string]string{"postgres": "$1", "mysql": "?"}[db.Driver]
			}
			run(t, db.DB, "DELETE FROM seen")
			if err := through.PingContext(testContext(t)); err != nil {
				t.Fatal(err)
			}
			h := p.HoldRequest(requests)
			gaveUp := make(chan error, 1)
			go func() { gaveUp <- execOnce(t.Context(), through, query, args...) }()
			h.Wait(t, soon)
			h.HangUp()
			if err := <-gaveUp; err == nil {
				t.Fatal("a held request was answered")
			}
			if n := through.Stats().OpenConnections; n != 0 {
				t.Fatalf("%d connections, want the only one closed", n)
			}
			run(t, through.DB, "INSERT INTO seen VALUES (2)")
			if n := text(t, db.DB, "SELECT COUNT(*) FROM seen WHERE n = 1"); n != "0" {
				t.Errorf("%d requests: executed before its time", requests)
			}
			h.Release()
			for deadline := time.Now().Add(soon); text(t, db.DB, "SELECT COUNT(*) FROM seen WHERE n = 1") != "1"; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d requests: it was not executed", requests)
				}
			}
		}
	})
}

// The reply comes when nobody listens any more; the next client is served.
func TestLateReplyToNobody(t *testing.T) {
	Each(t, func(t *testing.T, db *DB) {
		p := db.Proxy(t)
		run(t, db.DB, "CREATE TABLE seen (n INTEGER)")
		through := db.Through(t, p)
		through.SetMaxOpenConns(1)
		if err := through.PingContext(testContext(t)); err != nil {
			t.Fatal(err)
		}
		h := p.HoldReply(1)
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- execOnce(t.Context(), through, "INSERT INTO seen VALUES (1)") }()
		h.Wait(t, soon)
		if n := text(t, db.DB, "SELECT COUNT(*) FROM seen"); n != "1" {
			t.Errorf("%s rows, want 1: the server has done it", n)
		}
		h.HangUp()
		if err := <-gaveUp; err == nil {
			t.Error("a held reply arrived")
		}
		h.Release()
		if n := text(t, through.DB, "SELECT COUNT(*) FROM seen"); n != "1" {
			t.Errorf("%s rows, want 1", n)
		}
	})
}
