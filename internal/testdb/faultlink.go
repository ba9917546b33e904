package testdb

import (
	"net"
	"time"
)

// link is one connection through a Proxy: the client's half and the server's.
type link struct {
	proxy *Proxy
	ends  [2]*net.TCPConn // by the Direction that writes to it: server, client

	// Guarded by proxy.mu.
	asked bool     // the newest bytes came from the client
	fresh bool     // no bytes came from the client yet, or none since a Hold was asked for
	held  [2]*Held // what holds this direction back, or did until its Release
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed by the test's end
		}
		p.mu.Lock()
		refuse := p.fault.refuse
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, ends: [2]*net.TCPConn{ToServer: server.(*net.TCPConn), ToClient: client.(*net.TCPConn)}, fresh: true}
		p.mu.Lock()
		p.links[l] = true
		if p.isShut() { // its Cut was before this link
			l.close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { l.pump(ToServer) })
		p.wg.Go(func() { l.pump(ToClient) })
	}
}

func (l *link) close() {
	_ = l.ends[ToServer].Close()
	_ = l.ends[ToClient].Close()
}

func (l *link) reset() {
	_ = l.ends[ToServer].SetLinger(0)
	_ = l.ends[ToClient].SetLinger(0)
	l.close()
}

// packet is what one read brought, and when.
type packet struct {
	bytes []byte
	at    time.Time
}

// pump carries one direction. Reading and writing are apart, so that a delay
// shifts the bytes in time and does not also limit how many are on the way.
func (l *link) pump(d Direction) {
	queue := make(chan packet, 4096)
	l.proxy.wg.Go(func() { l.write(d, queue) })
	from := l.ends[1-d]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			queue <- packet{append([]byte(nil), buffer[:n]...), time.Now()}
		}
		if err != nil {
			close(queue)
			return
		}
	}
}

func (l *link) write(d Direction, queue <-chan packet) {
	for p := range queue {
		pass, cut := 0, true
		if l.wait(d, p.at) {
			pass, cut = l.decide(d, len(p.bytes))
		}
		if pass > 0 {
			_, err := l.ends[d].Write(p.bytes[:pass])
			// A client that is gone misses the answers, but what it sent
			// before is still on its way.
			cut = cut || err != nil && d == ToServer
		}
		if cut {
			l.end()
			for range queue { // lets the reader go
			}
			return
		}
	}
	if d == ToClient { // the server has closed
		l.end()
		return
	}
	// The client has closed: the server learns it behind the last request, and
	// ends the connection when it has done that.
	l.waitForDaylight()
	_ = l.ends[ToServer].CloseWrite()
}

// wait holds the bytes that came at this time as long as the faults want. It
// is false at the end of the test: then they must not arrive any more.
func (l *link) wait(d Direction, at time.Time) bool {
	if h := l.holder(d); h != nil {
		select {
		case <-h.released:
		case <-l.proxy.shut:
		}
	}
	if late := time.Until(at.Add(l.delay(d))); late > 0 {
		select {
		case <-time.After(late):
		case <-l.proxy.shut:
		}
	}
	return !l.proxy.isShut()
}

// end closes both sides, once the news can travel.
func (l *link) end() {
	l.waitForDaylight()
	l.close()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

func (l *link) waitForDaylight() {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.fault.blackHole && !p.isShut() {
		p.changed.Wait()
	}
}

func (p *Proxy) isShut() bool {
	select {
	case <-p.shut:
		return true
	default:
		return false
	}
}

func (l *link) delay(d Direction) time.Duration {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.proxy.fault.delay[d]
}

// decide applies the fault of this moment to n bytes: how many pass, and
// whether the connection ends behind them.
func (l *link) decide(d Direction, n int) (pass int, cut bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.bytes[d] += pass }()
	f := &p.fault
	if f.blackHole {
		return 0, false
	}
	if d == ToServer {
		l.asked = true
	} else if l.asked {
		l.asked = false
		p.trips++
		if f.loseReply > 0 {
			f.loseReply--
			if f.loseReply == 0 {
				return 0, true
			}
		}
	}
	if f.cut[d] {
		if n >= f.left[d] {
			pass = f.left[d]
			f.cut[d], f.left[d] = false, 0
			return pass, true
		}
		f.left[d] -= n
	}
	return n, false
}
