package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/leader"
	"github.com/intlock/intlock/registry"
)

// One leads at a time, knows it, and gives the role up when it ends.
func TestElection(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		var leading, most atomic.Int32
		stops := map[*leader.Elector]func() error{}
		var all []*leader.Elector
		for range 3 {
			e := elector(t, db, leader.Candidate{
				OnGranted: func(ctx context.Context) {
					if n := leading.Add(1); n > most.Load() {
						most.Store(n)
					}
					if hold, ok := registry.HoldFromContext(ctx); !ok || hold.Token() == 0 {
						t.Error("no token")
					}
					<-ctx.Done()
				},
				OnRevoked: func() { leading.Add(-1) },
			})
			all = append(all, e)
			stops[e] = runs(t, e)
		}
		for left := all; len(left) > 0; {
			at := -1
			eventually(t, "a leader", func() bool { at = slices.IndexFunc(left, (*leader.Elector).IsLeader); return at >= 0 })
			who, found, err := left[at].Leader(t.Context())
			if err != nil || !found || !who.Self || who.Holder != t.Name() {
				t.Errorf("Leader = %+v, %v, %v", who, found, err)
			}
			other := left[(at+1)%len(left)]
			if who, found, err := other.Leader(t.Context()); err != nil || !found || who.Self != (other == left[at]) {
				t.Errorf("another says %+v, %v, %v", who, found, err)
			}
			must(t, stops[left[at]]())
			if left[at].IsLeader() {
				t.Error("it says it still leads")
			}
			left = slices.Delete(slices.Clone(left), at, at+1)
		}
		if most.Load() != 1 || leading.Load() != 0 {
			t.Errorf("%d led at once, %d lead now", most.Load(), leading.Load())
		}
		if _, found, err := all[0].Leader(t.Context()); found || err != nil {
			t.Errorf("found %v, %v: want nobody", found, err)
		}
	})
}

// L1: after a loss and another election the role is given back all the same, and
// L4: by a lock that the registry has forgotten meanwhile.
func TestLossAndReturn(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		locks := locksOn(t, db)
		var events []leader.Event
		var mu sync.Mutex
		e, err := leader.New(locks, "role", leader.Candidate{}, leader.WithLogger(quiet), leader.WithTTL(600*time.Millisecond),
			leader.WithOnEvent(func(e leader.Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) }))
		must(t, err)
		stop := runs(t, e)
		eventually(t, "the first leadership", e.IsLeader)
		for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) { // an operator deletes the row
			result, err := db.Exec("DELETE FROM INT_LOCK WHERE LOCK_KEY = '" + registry.PathFor("role") + "'")
			if err == nil {
				if n, _ := result.RowsAffected(); n == 1 {
					break
				}
			}
			if time.Since(begin) > 10*time.Second {
				t.Fatal(err)
			}
		}
		lost := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(events, func(e leader.Event) bool { return e.Kind == leader.Revoked && errors.Is(e.Err, registry.ErrLockLost) })
		}
		eventually(t, "the loss", lost)
		locks.ExpireUnusedOlderThan(0)
		eventually(t, "the second leadership", e.IsLeader)
		must(t, stop())
		if _, held, err := locks.Info(t.Context(), "role"); held || err != nil {
			t.Errorf("held %v, %v: want it given back", held, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(events); n != 4 || events[2].Token <= events[0].Token || events[0].Role != "role" {
			t.Errorf("events %+v", events)
		}
	})
}

// L2: a callback that takes longer than the lease keeps its leadership.
func TestLongCallback(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		const ttl = 800 * time.Millisecond
		done := make(chan struct{})
		e := elector(t, db, leader.Candidate{OnGranted: func(ctx context.Context) {
			defer close(done)
			select {
			case <-time.After(2 * ttl):
			case <-ctx.Done():
				t.Errorf("its context ended: %v", context.Cause(ctx))
			}
		}}, leader.WithTTL(ttl))
		rival := elector(t, db, leader.Candidate{OnGranted: func(context.Context) {
			select {
			case <-done:
			default:
				t.Error("a second leader")
			}
		}})
		stop := runs(t, e)
		eventually(t, "leadership", e.IsLeader)
		runs(t, rival)
		<-done
		if !e.IsLeader() { // it has returned, and leads on
			t.Error("it leads no more")
		}
		must(t, stop())
		eventually(t, "the rival", rival.IsLeader)
	})
}

// Yield hands the role to somebody else, at once.
func TestYield(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		var a, b *leader.Elector
		pause := leader.WithYieldPause(500 * time.Millisecond)
		a, b = elector(t, db, leader.Candidate{}, pause), elector(t, db, leader.Candidate{}, pause)
		must(t, a.Yield(t.Context())) // it does not lead, nothing happens
		runs(t, a)
		eventually(t, "the first", a.IsLeader)
		runs(t, b)
		var took []time.Duration
		for range 6 {
			begin := time.Now()
			must(t, a.Yield(t.Context()))
			if a.IsLeader() {
				t.Fatal("it leads on")
			}
			eventually(t, "the other", b.IsLeader)
			took = append(took, time.Since(begin))
			a, b = b, a
			time.Sleep(520 * time.Millisecond) // the one that has yielded stands again
		}
		slices.Sort(took)
		t.Logf("from Yield to the other's leadership: median %v, longest %v", took[3], took[5])
		if took[3] > 200*time.Millisecond {
			t.Errorf("median %v", took[3])
		}
	})
}

// OnGranted may give the role up itself.
func TestYieldFromWithin(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		var e *leader.Elector
		revoked := make(chan struct{}, 1)
		e = elector(t, db, leader.Candidate{
			OnGranted: func(ctx context.Context) {
				if err := e.Yield(ctx); err != nil || !errors.Is(context.Cause(ctx), leader.ErrYielded) {
					t.Errorf("%v, cause %v", err, context.Cause(ctx))
				}
			},
			OnRevoked: func() { revoked <- struct{}{} },
		}, leader.WithYieldPause(time.Hour))
		stop := runs(t, e)
		<-revoked
		eventually(t, "a free role", func() bool { _, held, err := e.Leader(t.Context()); return err == nil && !held })
		must(t, stop())
	})
}

// L3: while the database does not answer the leader stops to believe in time, the
// election goes on, and it leads again when the database is back.
func TestOutage(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		must(t, schemaApply(t, db))
		proxy := db.Proxy(t) // not SQLite, which has no network
		const ttl = time.Second
		revoked := make(chan time.Time, 10)
		through := db.Through(t, proxy)
		e, err := leader.New(locksOn(t, through, registry.WithOutageLimit(300*time.Millisecond)), "role",
			leader.Candidate{OnGranted: func(ctx context.Context) { <-ctx.Done(); revoked <- time.Now() }}, leader.WithLogger(quiet), leader.WithTTL(ttl))
		must(t, err)
		stop := runs(t, e)
		eventually(t, "leadership", e.IsLeader)
		cut := time.Now()
		proxy.Refuse()
		proxy.Cut()
		if took := (<-revoked).Sub(cut); took > ttl+500*time.Millisecond {
			t.Errorf("it believed for %v", took)
		}
		if e.IsLeader() {
			t.Error("it says it leads")
		}
		time.Sleep(time.Second) // past the outage limit
		proxy.Heal()
		eventually(t, "leadership again", e.IsLeader)
		must(t, stop())
	})
}

// L5: the role is given back though the context of Run has ended, also while the
// callback still cleans up.
func TestStop(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		var order []string
		locks := locksOn(t, db)
		e, err := leader.New(locks, "role", leader.Candidate{
			OnGranted: func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(20 * time.Millisecond)
				if _, held, err := locks.Info(context.Background(), "role"); err != nil || !held {
					t.Errorf("held %v, %v: free before the callback has returned", held, err)
				}
				order = append(order, "granted")
			},
			OnRevoked: func() { order = append(order, "revoked") },
		}, leader.WithLogger(quiet))
		must(t, err)
		stop := runs(t, e)
		eventually(t, "leadership", e.IsLeader)
		if err := e.Run(t.Context()); !errors.Is(err, leader.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		must(t, stop())
		if !slices.Equal(order, []string{"granted", "revoked"}) {
			t.Errorf("order %v", order)
		}
		if _, held, err := locks.Info(t.Context(), "role"); held || err != nil {
			t.Errorf("held %v, %v", held, err)
		}
	})
}

// A candidate that panics ends the election, and the role is free.
func TestPanic(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		boom := errors.New("boom")
		for _, c := range []leader.Candidate{
			{OnGranted: func(context.Context) { panic(boom) }},
			{OnGranted: func(ctx context.Context) { <-ctx.Done() }, OnRevoked: func() { panic(boom) }},
		} {
			e := elector(t, db, c)
			ctx, cancel := context.WithCancel(t.Context())
			if c.OnRevoked != nil {
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			for begin := time.Now(); ; {
				err := e.Run(ctx)
				var panicked *leader.PanicError
				if err == nil && time.Since(begin) < 10*time.Second { // ended before it led
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
					continue
				}
				if !errors.As(err, &panicked) || !errors.Is(err, boom) || len(panicked.Stack) == 0 {
					t.Errorf("err = %v", err)
				}
				break
			}
			cancel()
			if _, held, err := e.Leader(t.Context()); held || err != nil {
				t.Errorf("held %v, %v", held, err)
			}
		}
	})
}

// What cannot pass ends the election.
func TestWrong(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		locks := locksOn(t, db)
		for _, opts := range [][]leader.Option{{leader.WithTTL(time.Millisecond)}, {leader.WithYieldPause(-1)}, {leader.WithLogger(nil)}} {
			if _, err := leader.New(locks, "role", leader.Candidate{}, opts...); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("err = %v, want ErrInvalid", err)
			}
		}
		if _, err := leader.New(locks, "", leader.Candidate{}); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("no role: %v", err)
		}
		e, err := leader.New(locks, "role", leader.Candidate{}, leader.WithLogger(quiet))
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background()) }()
		eventually(t, "leadership", e.IsLeader)
		must(t, locks.Close(t.Context()))
		if err := <-ended; !errors.Is(err, registry.ErrClosed) {
			t.Errorf("err = %v, want ErrClosed", err)
		}
		_ = fmt.Sprint(leader.Granted, leader.Revoked, leader.Unavailable, leader.Kind(9))
	})
}
