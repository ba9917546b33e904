package check

import (
	"context"
	"time"

	"github.com/intlock/intlock/internal/testdb"
)

// fault is what is done to the workers, the network or the server while they run.
type fault struct {
	name string
	not  string // where it makes no sense: "sqlite", "servers", or nowhere
	do   func(s *scene)
}

var faults = []fault{
	{"worker killed", "", func(s *scene) {
		at, p := s.any()
		p.Kill()
		s.start(at, 2+s.random.IntN(6))
	}},
	{"pool of one", "", func(s *scene) {
		at, p := s.any()
		p.Kill()
		s.start(at, 1)
	}},
	{"worker stopped past its leases", "", func(s *scene) {
		_, p := s.any()
		p.Stop(s.t)
		time.Sleep(ttl)
		s.pause(500 * time.Millisecond)
		p.Cont(s.t)
	}},
	{"worker stopped for a moment", "", func(s *scene) {
		_, p := s.any()
		p.Stop(s.t)
		s.pause(ttl / 2)
		p.Cont(s.t)
	}},
	{"write lock of the file held", "servers", func(s *scene) {
		conn, err := s.db.Conn(context.Background())
		must(s.t, err)
		defer conn.Close()
		if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err == nil {
			s.pause(1500 * time.Millisecond)
			_, err = conn.ExecContext(context.Background(), "ROLLBACK")
			must(s.t, err)
		}
	}},
	{"connections closed", "sqlite", func(s *scene) { s.proxy.Cut() }},
	{"connections reset", "sqlite", func(s *scene) { s.proxy.Reset() }},
	{"network swallows", "sqlite", func(s *scene) {
		s.proxy.BlackHole()
		s.pause(1500 * time.Millisecond)
		s.proxy.Heal()
		s.proxy.Cut()
	}},
	{"requests late", "sqlite", func(s *scene) { s.delay(testdb.ToServer) }},
	{"answers late", "sqlite", func(s *scene) { s.delay(testdb.ToClient) }},
	{"answer lost", "sqlite", func(s *scene) { s.proxy.LoseReply(1 + s.random.IntN(20)) }},
	{"request arrives after the lease", "sqlite", func(s *scene) {
		held := s.proxy.HoldRequest(1 + s.random.IntN(20))
		time.Sleep(ttl)
		s.pause(ttl)
		held.Release()
	}},
	{"server killed", "sqlite", func(s *scene) { s.server.Restart(s.t, testdb.Kill) }},
	{"server stopped", "sqlite", func(s *scene) { s.server.Restart(s.t, testdb.Fast) }},
}

func (s *scene) delay(way testdb.Direction) {
	s.proxy.Delay(way, 5*time.Millisecond+time.Duration(s.random.Int64N(int64(300*time.Millisecond))))
	s.pause(time.Second)
	s.proxy.Heal()
}

// disturb does one fault after the other, in an order that the seed decides, until the
// time is over.
func (s *scene) disturb(for_ time.Duration, faults []fault) {
	var order []int
	for begin := time.Now(); time.Since(begin) < for_; {
		time.Sleep(200 * time.Millisecond)
		s.pause(600 * time.Millisecond)
		if len(order) == 0 {
			order = s.random.Perm(len(faults))
		}
		f := faults[order[0]]
		order = order[1:]
		f.do(s)
		s.done[f.name]++
	}
}
