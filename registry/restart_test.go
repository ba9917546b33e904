package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

const (
	// A lease that outlives every restart, and one that may not.
	longTTL, shortTTL = 60 * time.Second, 2 * time.Second
	// For what is over at once on a quiet machine.
	patience = 15 * time.Second
)

// TestRestart ends the server, in every way, and starts it again, while locks
// are held, waited for and taken. A lease survives, or its holder hears of its
// loss in time; every wait ends with the lock; no two have it, and what was
// granted is in the table: the servers are durable.
func TestRestart(t *testing.T) {
	for _, name := range []string{vendor.Postgres, vendor.MySQL, vendor.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testdb.Private(t, name)
			db := server.Open(t)
			prepare(t, db)
			for _, mode := range []testdb.StopMode{testdb.Fast, testdb.Immediate, testdb.Kill} {
				t.Run(fmt.Sprint(mode), func(t *testing.T) { restart(t, server, db, mode) })
			}
		})
	}
}

// outage is one restart, and what happens around it.
type outage struct {
	t              *testing.T
	locks, waiters *registry.JdbcLockRegistry // two processes
	running        context.Context            // ends a while after the restart
	holders        map[string]*believers      // by key; the map does not change

	mu     sync.Mutex // guards the rest
	leases []*lease   // collected through the outage
	tally  struct {
		unanswered, lost, waits, turns int
		longestRenewal, longestTurn    time.Duration
	}
}

// lease is one that is kept through the outage.
type lease struct {
	key     string
	hold    *registry.Hold
	watched context.Context
	ttl     time.Duration
	asked   time.Time // when its end was last put off, or a little before
}

func restart(t *testing.T, server *testdb.PrivateServer, db *testdb.DB, mode testdb.StopMode) {
	running, stop := context.WithCancel(t.Context())
	process := func() *registry.JdbcLockRegistry {
		pool := db.Again(t)
		pool.SetMaxIdleConns(30) // all of them dead after the restart
		return newRegistry(t, pool.DB, quietly...)
	}
	o := &outage{t: t, running: running, holders: map[string]*believers{"free": {t: t, key: "free"}}, locks: process(), waiters: process()}
	var held []*lease
	for i := range 20 {
		key, ttl := fmt.Sprint("long-", i), longTTL
		if i%2 == 0 {
			key, ttl = fmt.Sprint("short-", i), shortTTL
		}
		o.holders[key] = &believers{t: t, key: key}
		held = append(held, o.take(t.Context(), o.locks, key, ttl))
		o.holders[key].add(held[i].hold)
	}
	defer watch(slices.Collect(maps.Values(o.holders))...)()
	var all, waits sync.WaitGroup
	defer all.Wait()
	defer stop()
	waiting, giveUp := context.WithTimeout(t.Context(), 2*longTTL)
	defer giveUp()
	for _, l := range held {
		all.Go(func() { o.keep(l) })
		waits.Go(func() { o.wait(waiting, l.key) })
	}
	for _, locks := range []*registry.JdbcLockRegistry{o.locks, o.waiters} {
		all.Go(func() { o.takeTurns(locks) })
		all.Go(func() { o.takeTurns(locks) })
		all.Go(func() { o.collect(locks) })
	}
	time.Sleep(500 * time.Millisecond)

	began := time.Now()
	server.Stop(t, mode)
	time.Sleep(200 * time.Millisecond)
	server.Start(t)
	down := time.Since(began)
	for _, locks := range []*registry.JdbcLockRegistry{o.locks, o.waiters, process()} {
		if err := locks.ExecuteLocked(t.Context(), "new", func(context.Context) error { return nil }); err != nil {
			t.Errorf("a new call after the restart: %v", err)
		}
	}
	work := time.Since(began)
	time.Sleep(500 * time.Millisecond)
	stop()
	all.Wait()
	for _, l := range append(held, o.leases...) {
		o.giveBack(l, down)
	}
	unlocked := time.Now()
	waits.Wait()
	if took := time.Since(unlocked); took > patience {
		t.Errorf("the last who waited had the lock %v after its unlock", took)
	}
	// A short lease that could not be given back while the server was down has
	// ended; its row may stay until somebody takes the key.
	repo, err := repository.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	left := -1
	for left != 0 && time.Since(unlocked) < 2*patience {
		time.Sleep(20 * time.Millisecond)
		rows, err := repo.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left = 0
		for _, row := range rows {
			if row.Remaining > 0 {
				left++
			}
		}
	}
	if left > 0 {
		t.Errorf("%d locks are left %v after the last unlock", left, time.Since(unlocked))
	}
	y := &o.tally
	if y.longestTurn > down+patience {
		t.Errorf("a lock call took %v, the server was down for %v", y.longestTurn, down)
	}
	ms := time.Millisecond
	t.Logf("%s: down for %v, new calls done after %v; of %d leases %d were lost; %d renewals without an answer, the longest of %v; %d more leases collected; %d waits got the lock, %d turns, the longest of %v; table empty after %v",
		t.Name(), down.Round(ms), work.Round(ms), len(held), y.lost, y.unanswered, y.longestRenewal.Round(ms), len(o.leases),
		y.waits, y.turns, y.longestTurn.Round(ms), time.Since(unlocked).Round(ms))
}

// take returns nil if ctx ended.
func (o *outage) take(ctx context.Context, locks *registry.JdbcLockRegistry, key string, ttl time.Duration) *lease {
	l := &lease{key: key, ttl: ttl, asked: time.Now()}
	var err error
	if l.hold, err = locks.Obtain(key).LockContext(ctx, registry.WithTTL(ttl)); err != nil {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			o.t.Errorf("lock %s: %v", key, err)
		}
		return nil
	}
	l.watched = l.hold.Context(context.Background())
	return l
}

// keep renews a lease until it is lost: not before its time, and not later.
func (o *outage) keep(l *lease) {
	for o.running.Err() == nil {
		began := time.Now()
		err := l.hold.Renew(context.Background(), registry.WithTTL(l.ttl))
		o.mu.Lock()
		o.tally.longestRenewal = max(o.tally.longestRenewal, time.Since(began))
		switch {
		case err == nil:
			l.asked = began
		case errors.Is(err, registry.ErrUnavailable):
			o.tally.unanswered++
		default:
			o.tally.lost++
		}
		o.mu.Unlock()
		if err != nil && !errors.Is(err, registry.ErrUnavailable) {
			o.ended(l, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ended checks how the holder heard of a loss.
func (o *outage) ended(l *lease, err error) {
	var lost *registry.LostError
	age := time.Since(l.asked)
	if !errors.As(err, &lost) || lost.Reason == registry.LossGone || age < l.ttl*9/10 {
		o.t.Errorf("%s, %v after its lease was granted or renewed: %v", l.key, age, err)
	}
	if l.watched.Err() == nil || l.hold.Held() {
		o.t.Errorf("%s is lost, and its holder does not hear of it", l.key)
	}
}

// giveBack: a lease that stands stood through the restart in the table, too.
func (o *outage) giveBack(l *lease, down time.Duration) {
	err := l.hold.Renew(context.Background(), registry.WithTTL(l.ttl))
	if err == nil {
		err = l.hold.Unlock(context.Background())
		if l.watched.Err() == nil {
			o.t.Errorf("%s was unlocked, and its context goes on", l.key)
		}
	} else {
		l.hold.Unlock(context.Background())
	}
	if err != nil {
		o.ended(l, err)
	}
	if err != nil && l.ttl == longTTL && down < longTTL/2 {
		o.t.Errorf("%s, with a TTL of %v, has not survived %v: %v", l.key, l.ttl, down, err)
	}
}

// wait waits for a key that is held.
func (o *outage) wait(ctx context.Context, key string) {
	l := o.take(ctx, o.waiters, key, longTTL)
	if l == nil {
		o.t.Errorf("the wait for %s did not end", key)
		return
	}
	o.holders[key].add(l.hold)
	o.mu.Lock()
	o.tally.waits++
	o.mu.Unlock()
	if err := l.hold.Unlock(context.Background()); err != nil && !errors.Is(err, registry.ErrUnavailable) {
		o.t.Errorf("unlock %s: %v", key, err)
	}
}

// takeTurns uses the one key that nobody holds for long.
func (o *outage) takeTurns(locks *registry.JdbcLockRegistry) {
	free := o.holders["free"]
	for {
		began := time.Now()
		l := o.take(o.running, locks, "free", shortTTL)
		if l == nil {
			return
		}
		free.add(l.hold)
		o.mu.Lock()
		o.tally.turns++
		o.tally.longestTurn = max(o.tally.longestTurn, time.Since(began))
		o.mu.Unlock()
		time.Sleep(time.Millisecond)
		if err := l.hold.Unlock(context.Background()); err != nil && !errors.Is(err, registry.ErrUnavailable) {
			o.ended(l, err)
		}
		free.remove(l.hold)
	}
}

// collect takes one key after the other and keeps it: whatever moment the
// server ends at, some grants were just answered.
func (o *outage) collect(locks *registry.JdbcLockRegistry) {
	for i := 0; o.running.Err() == nil; i++ {
		l := o.take(o.running, locks, fmt.Sprintf("collected-%d-%p", i, locks), longTTL)
		if l == nil {
			return
		}
		o.mu.Lock()
		o.leases = append(o.leases, l)
		o.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}
