package testdb

import (
	"testing"
	"time"
)

// Held is a request or a reply that a Proxy holds back: an operation that its
// client has long given up on can so reach the server after all. Whatever
// follows on the same connection in that direction is held too. Other
// connections are not affected.
type Held struct {
	proxy    *Proxy
	caught   chan struct{} // closed when there are bytes
	released chan struct{} // closed by Release

	// Guarded by proxy.mu.
	left int // requests or replies up to the one that is meant
	link *link
}

// HoldRequest holds back the n-th request from now on, 1 being the next, until
// Release. It arrives then even if its client has closed the connection in the
// meantime. A statement with arguments is two requests, as for LoseReply.
// Another call before Wait has returned replaces this one.
//
// Bytes that get no reply count as one request with those behind them. As
// go-sql-driver closes a prepared statement with such bytes, they could be
// taken for the next request: after a statement with arguments, Ping first.
func (p *Proxy) HoldRequest(n int) *Held { return p.holdBack(ToServer, n) }

// HoldReply holds back the n-th reply from now on, 1 being the next, until
// Release.
func (p *Proxy) HoldReply(n int) *Held { return p.holdBack(ToClient, n) }

func (p *Proxy) holdBack(d Direction, n int) *Held {
	h := &Held{proxy: p, left: n, caught: make(chan struct{}), released: make(chan struct{})}
	p.set(func(f *fault) {
		f.hold[d] = h
		for l := range p.links {
			l.fresh = true
		}
	})
	return h
}

// Wait returns when the bytes are there. It fails the test if they do not come
// in time.
func (h *Held) Wait(t testing.TB, timeout time.Duration) {
	t.Helper()
	select {
	case <-h.caught:
	case <-time.After(timeout):
		t.Fatalf("testdb: nothing to hold back came to the proxy within %v", timeout)
	}
}

// HangUp tells the client, after Wait, that its connection has ended, as a
// network does that drops it. For lib/pq nothing else ends a request: it does
// not return when its context ends. What is held still arrives.
func (h *Held) HangUp() {
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	// Only this way is closed: what the client has sent is read to its end.
	_ = h.link.ends[ToClient].CloseWrite()
}

// Release sends the bytes on their way. It does not wait until they arrive.
// What is not released before the end of the test is lost.
func (h *Held) Release() { close(h.released) }

// holder is what holds back bytes that now came in this direction, nil for
// nothing.
func (l *link) holder(d Direction) *Held {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	begins := l.asked // a reply does
	if d == ToServer {
		begins = !l.asked || l.fresh
		l.fresh = false
	}
	if h := p.fault.hold[d]; h != nil && begins && !p.fault.blackHole {
		h.left--
		if h.left == 0 {
			p.fault.hold[d] = nil
			h.link, l.held[d] = l, h
			close(h.caught)
		}
	}
	return l.held[d]
}
