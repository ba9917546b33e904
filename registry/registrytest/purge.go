package registrytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

var purgeClauses = []clause{
	{"DeleteExpired", "DeleteExpired deletes what has expired, whoever left it, and nothing that is held", func(t *testing.T, b Backend) {
		p, q := start(t, b, "a"), start(t, b, "b")
		p.leave(b, "1", "2", "3")
		q.leave(b, "4")
		mine, theirs := p.lock("mine"), q.lock("theirs")
		p.purged(4)
		p.purged(0)
		if n := p.rows(); n != 2 {
			t.Errorf("%d rows are left, want the two that are held", n)
		}
		p.unlock(mine, nil)
		q.unlock(theirs, nil)
	}},
	{"DeleteExpiredTriesAgain", "while the database does not answer DeleteExpired tries again, for the outage limit", func(t *testing.T, b Backend) {
		p := start(t, b, "a", registry.WithOutageLimit(300*time.Millisecond))
		p.leave(b, "1")
		calls := 0
		p.repo.Set(func(_ context.Context, op string, do func() error) error {
			if op == "deleteExpired" {
				if calls++; calls < 3 {
					return errRefused
				}
			}
			return do()
		})
		p.purged(1)
		p.repo.Set(func(context.Context, string, func() error) error { return errGone })
		begin := time.Now()
		_, err := p.DeleteExpired(context.Background())
		if !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, repository.ErrTransient) {
			t.Errorf("err = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took < 300*time.Millisecond {
			t.Errorf("it gave up after %v", took)
		}
		p.repo.Set(nil)
	}},
	{"DeleteExpiredFails", "DeleteExpired returns at once an error that does not pass", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		broken := errors.New("permission denied")
		calls := 0
		p.repo.Set(func(context.Context, string, func() error) error {
			calls++
			return broken
		})
		if _, err := p.DeleteExpired(context.Background()); !errors.Is(err, broken) || calls != 1 {
			t.Errorf("err = %v after %d calls, want the database's error after one", err, calls)
		}
		p.repo.Set(nil)
	}},
	{"DeleteExpiredEnds", "DeleteExpired ends with its context, and with the registry, also while the database does not answer", func(t *testing.T, b Backend) {
		p := start(t, b, "a")
		for _, end := range []struct {
			with error
			how  func(cancel func()) error
		}{
			{context.Canceled, func(cancel func()) error { cancel(); return nil }},
			{registry.ErrClosed, func(func()) error { return p.Close(context.Background()) }},
		} {
			under, answer := make(chan struct{}), make(chan struct{})
			p.repo.Set(func(context.Context, string, func() error) error {
				close(under)
				<-answer
				return errGone
			})
			ctx, cancel := context.WithCancel(context.Background())
			purge := goes(func() error { _, err := p.DeleteExpired(ctx); return err })
			ends(t, "the statement", under)
			ended := goes(func() error { return end.how(cancel) })
			if err := ends(t, "DeleteExpired", purge); !errors.Is(err, end.with) {
				t.Errorf("err = %v, want %v", err, end.with)
			}
			close(answer)
			if err := ends(t, "its end", ended); err != nil {
				t.Error(err)
			}
			cancel()
		}
		p.repo.Set(nil)
		if n, err := p.DeleteExpired(context.Background()); n != 0 || !errors.Is(err, registry.ErrClosed) {
			t.Errorf("after Close: %d, %v; want ErrClosed", n, err)
		}
	}},
}

// leave leaves rows behind whose leases have ended.
func (p process) leave(b Backend, keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			out, err := p.repo.LockRepository.Acquire(context.Background(), repository.Request{Key: key, Attempt: repository.NewAttempt(), TTL: time.Minute})
			if out.Acquired {
				break
			}
			if !errors.Is(err, repository.ErrTransient) || time.Since(start) > 10*time.Second {
				p.t.Fatalf("acquire %s: %+v, %v", key, out, err)
			}
		}
		b.Expire(p.t, key)
	}
}

func (p process) purged(want int64) {
	p.t.Helper()
	if n, err := p.DeleteExpired(context.Background()); n != want || err != nil {
		p.t.Errorf("DeleteExpired = %d, %v; want %d", n, err, want)
	}
}
