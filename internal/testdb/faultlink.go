package testdb

import (
	"net"
	"time"
)

// link is one connection through a Proxy: the client's half and the server's.
type link struct {
	proxy *Proxy
	ends  [2]*net.TCPConn // by the Direction that writes to it: server, client
	asked bool            // the newest bytes came from the client; guarded by proxy.mu
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
		l := &link{proxy: p, ends: [2]*net.TCPConn{ToServer: server.(*net.TCPConn), ToClient: client.(*net.TCPConn)}}
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
	defer l.forget()
	for p := range queue {
		if wait := time.Until(p.at.Add(l.delay(d))); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.proxy.shut:
			}
		}
		pass, cut := l.decide(d, len(p.bytes))
		if pass > 0 {
			if _, err := l.ends[d].Write(p.bytes[:pass]); err != nil {
				cut = true
			}
		}
		if cut {
			break
		}
	}
	// One side has closed, or a fault ends it: then both sides end, once the
	// news can travel.
	l.waitForDaylight()
	l.close()
	for range queue { // lets the reader go
	}
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

func (l *link) forget() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

// decide applies the fault of this moment to n bytes: how many pass, and
// whether the connection ends behind them.
func (l *link) decide(d Direction, n int) (pass int, cut bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
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
