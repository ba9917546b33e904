package pglisten

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/lib/pq"
)

// pq.ListenerConn is used rather than pq.Listener, which is made of it: it takes
// statements, so that the advisory locks lie on the same connection. Its calls
// may hang with the network, so each runs on a goroutine of its own, for a
// bounded time.

// How long the server may take to answer, how often it is asked whether it is
// still there, and the pauses between attempts to connect.
const (
	answerTime   = 5 * time.Second
	pingTime     = 15 * time.Second
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	sayAgain     = time.Minute
	partingTime  = time.Second // for an orderly end
)

var errNoAnswer = errors.New("the server does not answer")

// supervise keeps a connection until ctx ends.
func (l *Listener) supervise(ctx context.Context) {
	pause, said := firstPause, time.Time{}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.serve(ctx)
		l.setAlive(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestPause {
			pause, said = firstPause, time.Time{}
		}
		if time.Since(said) > sayAgain {
			said = time.Now()
			l.logger.Warn("locks: no notifications, waiters poll; connecting again", "error", vendor.Scrub(err.Error()))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// serve connects, and listens until the connection breaks or ctx ends.
func (l *Listener) serve(ctx context.Context) error {
	notes := make(chan *pq.Notification, 32)
	conn, err := l.connect(ctx, notes)
	if err != nil {
		return err
	}
	broken := make(chan struct{})
	go func() { // nothing may wait for us here: a full channel stops the connection
		defer close(broken)
		for n := range notes {
			if n != nil && n.Extra != "" {
				l.wake(n.Extra)
			}
		}
	}()
	defer func() {
		if ctx.Err() != nil { // an orderly end: nothing is sent to us any more
			parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
			l.exec(parting, conn, "UNLISTEN *")
			cancel()
		}
		go conn.Close()
		select {
		case <-broken:
		case <-time.After(answerTime):
		}
	}()
	// Notifications come from now on. Nobody else takes the locks, but if
	// somebody does we do not wait for him; and the session may idle.
	for _, text := range []string{
		"LISTEN " + pq.QuoteIdentifier(vendor.WaitChannel),
		"SET lock_timeout = 1000",
		"SELECT set_config(name, '0', FALSE) FROM pg_settings WHERE name = 'idle_session_timeout'",
	} {
		if err := l.exec(ctx, conn, text); err != nil {
			return err
		}
	}
	if err := l.arrange(ctx, conn); err != nil {
		return err
	}
	l.setAlive(true)
	l.wake("") // what was released meanwhile has notified nobody
	ping := time.NewTicker(pingTime)
	defer ping.Stop()
	tidy := time.NewTicker(keptNeedless)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errors.New("the connection broke")
		case <-ping.C:
			if err := l.exec(ctx, conn, ""); err != nil {
				return err
			}
			continue
		case <-tidy.C:
		case <-l.changed:
		}
		if err := l.arrange(ctx, conn); err != nil {
			return err
		}
	}
}

// connect opens a connection, or gives up when ctx ends.
func (l *Listener) connect(ctx context.Context, notes chan<- *pq.Notification) (*pq.ListenerConn, error) {
	type result struct {
		conn *pq.ListenerConn
		err  error
	}
	results := make(chan result, 1)
	go func() {
		conn, err := pq.NewListenerConn(l.dsn, notes)
		results <- result{conn, err}
	}()
	select {
	case r := <-results:
		return r.conn, r.err
	case <-ctx.Done():
		go func() { // it may still come
			if r := <-results; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// exec runs a statement, within answerTime. A statement that the server refuses
// is an error too; the connection then is as good as before.
func (l *Listener) exec(ctx context.Context, conn *pq.ListenerConn, text string) error {
	errs := make(chan error, 1)
	go func() {
		_, err := conn.ExecSimpleQuery(text)
		errs <- err
	}()
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case err := <-errs:
		return err
	case <-timer.C:
		return errNoAnswer
	case <-ctx.Done():
	}
	select { // a connection that is closed under a statement leaves an error in the server's log
	case err := <-errs:
		return errors.Join(ctx.Err(), err)
	case <-time.After(partingTime):
		return ctx.Err()
	}
}

// arrange takes and gives back the advisory locks that say which keys somebody
// waits for.
func (l *Listener) arrange(ctx context.Context, conn *pq.ListenerConn) error {
	lock, unlock := l.dueBuckets(time.Now())
	for _, i := range lock {
		err := l.exec(ctx, conn, fmt.Sprintf("SELECT pg_advisory_lock_shared(%d, %d)", vendor.WaitClass, i))
		if err != nil {
			return err
		}
		l.setLocked(i)
	}
	for _, i := range unlock {
		err := l.exec(ctx, conn, fmt.Sprintf("SELECT pg_advisory_unlock_shared(%d, %d)", vendor.WaitClass, i))
		if err != nil {
			return err
		}
	}
	return nil
}
