package pglisten_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A server that takes connections and says nothing, as one that hangs or a
// network that swallows everything: the attempt ends, another one follows, and
// at the end nothing of them is left.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	var came, gone atomic.Int32
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			go func() {
				defer gone.Add(1)
				defer conn.Close()
				for buf := make([]byte, 1024); ; {
					if _, err := conn.Read(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	l := listener(t, fmt.Sprintf("postgres://app:secret@%s/app?sslmode=disable", silent.Addr()))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	l.Start(ctx, func(string) {}, func() { close(stopped) })
	eventually(t, "a second attempt", func() bool { return came.Load() > 1 })
	cancel()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Error("the end waits for a server that does not answer")
	}
	eventually(t, "no connection after the end", func() bool { return gone.Load() == came.Load() })
}
