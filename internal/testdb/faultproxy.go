package testdb

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/intlock/intlock/internal/vendor"
)

// Proxy stands between a client and a server on this machine, forwards bytes,
// and can break the way at a chosen moment. It knows nothing of what passes.
//
// A fault applies to every connection, those that are open and those to come,
// until Heal.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	shut     chan struct{} // closed at the end of the test

	mu      sync.Mutex // guards the rest
	changed *sync.Cond // of fault, or shut
	links   map[*link]bool
	fault   fault
	trips   int
	bytes   [2]int // that passed, by Direction
}

// fault is what happens to the bytes; its zero value is nothing.
type fault struct {
	loseReply int  // swallow this reply, 1 is the next, then cut
	blackHole bool // swallow everything, keep the connection open
	refuse    bool // cut new connections at once
	cut       [2]bool
	left      [2]int // bytes that still pass before the cut
	delay     [2]time.Duration
	hold      [2]*Held // what to hold back, until it is caught
}

// Direction is one of the two ways through a Proxy.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// NewProxy starts a proxy in front of host:port, which ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testdb: proxy: %v", err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]bool{}, shut: make(chan struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.set(func(*fault) { close(p.shut) })
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// RoundTrips counts how often bytes of a client were followed by bytes of the
// server since the last ResetRoundTrips. Connecting costs several, so count
// on a connection that is already open.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// ResetRoundTrips starts the count again.
func (p *Proxy) ResetRoundTrips() { p.set(func(*fault) { p.trips = 0 }) }

// Bytes counts the bytes that passed in this direction since the last
// ResetBytes: those of an operation tell where CutAfter can hit it. What needs
// no reply, such as go-sql-driver's closing of a prepared statement, may be
// counted only after the operation has returned.
func (p *Proxy) Bytes(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes[d]
}

// ResetBytes starts both counts again.
func (p *Proxy) ResetBytes() { p.set(func(*fault) { p.bytes = [2]int{} }) }

// LoseReply swallows the n-th reply from now on, 1 being the next, and cuts
// that connection: the server has done it and the client cannot know. A
// statement with arguments takes two round trips in lib/pq and in
// go-sql-driver, to prepare and to execute: there the reply of interest is
// the second.
func (p *Proxy) LoseReply(n int) { p.set(func(f *fault) { f.loseReply = n }) }

// CutAfter cuts the connection that carries the n-th byte from now on in this
// direction, behind that byte; n = 0 cuts before the next one.
func (p *Proxy) CutAfter(d Direction, n int) {
	p.set(func(f *fault) { f.cut[d], f.left[d] = true, n })
}

// BlackHole swallows everything in both directions and keeps the connections
// open, as a network does that loses its packets: if one side hangs up, the
// other does not learn it before Heal.
func (p *Proxy) BlackHole() { p.set(func(f *fault) { f.blackHole = true }) }

// Delay holds back everything in one direction by this much; 0 ends it.
func (p *Proxy) Delay(d Direction, by time.Duration) { p.set(func(f *fault) { f.delay[d] = by }) }

// Refuse cuts new connections at once and leaves the open ones.
func (p *Proxy) Refuse() { p.set(func(f *fault) { f.refuse = true }) }

// Heal ends all faults. What was swallowed stays lost, and what is Held stays
// held.
func (p *Proxy) Heal() { p.set(func(f *fault) { *f = fault{} }) }

func (p *Proxy) set(change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.fault)
	p.changed.Broadcast()
}

// Cut closes every open connection.
func (p *Proxy) Cut() { p.each((*link).close) }

// Reset ends every open connection with a TCP reset, on both sides.
func (p *Proxy) Reset() { p.each((*link).reset) }

func (p *Proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// Addr is the host:port of the server behind d, "" if d is not reached by TCP.
func (d *DB) Addr() string {
	switch d.Vendor {
	case vendor.SQLite:
		return ""
	case vendor.Postgres:
		u, err := parseURL(d.DSN)
		if err != nil || strings.HasPrefix(u.Hostname(), "/") {
			return ""
		}
		port := u.Port()
		if port == "" {
			port = "5432"
		}
		return net.JoinHostPort(u.Hostname(), port)
	}
	if cfg, err := mysql.ParseDSN(d.DSN); err == nil && cfg.Net == "tcp" {
		return cfg.Addr
	}
	return ""
}

// Proxy starts a proxy in front of d's server. SQLite has none, and its tests
// are skipped.
func (d *DB) Proxy(t testing.TB) *Proxy {
	t.Helper()
	addr := d.Addr()
	if addr == "" {
		t.Skipf("%s is not reached over a network", d.Vendor)
	}
	return NewProxy(t, addr)
}

// Through opens a second pool on the same database that goes through the
// proxy.
func (d *DB) Through(t testing.TB, p *Proxy) *DB {
	t.Helper()
	second := *d
	if d.Vendor == vendor.Postgres {
		u, err := parseURL(d.DSN)
		if err != nil {
			t.Fatalf("testdb: through a proxy: %v", err)
		}
		second.DSN = (&url.URL{Scheme: u.Scheme, User: u.User, Host: p.Addr(), Path: u.Path, RawQuery: u.RawQuery}).String()
		return open(t, &second)
	}
	cfg, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		t.Fatalf("testdb: through a proxy: %v", errMySQLDSN)
	}
	cfg.Net, cfg.Addr = "tcp", p.Addr()
	second.DSN = cfg.FormatDSN()
	return open(t, &second)
}
