package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intlock/intlock/repository"
)

// lane takes requests of one kind to the repository. While some are under way
// those that come in wait, and then go together, in one statement: so the
// database commits once for many. Nobody waits for others to come: a request
// that finds the lane nearly empty goes at once, by itself. When many wait one
// statement at a time is best, as then the batches are large.
//
// A statement that takes long, because a row is locked or the network is dead,
// does not hold up what comes after it: then the lane gets another runner. And
// one that the driver does not come back from is answered for when its time is
// up, and counts no more.
type lane[Q, A any] struct {
	background *tasks
	alone      func(context.Context, Q) (A, error)
	together   func(context.Context, []Q) ([]repository.Answer[A], error) // nil: the repository takes one at a time

	mu      sync.Mutex // guards the fields below; never held while a statement runs
	waiting []*errand[Q, A]
	runners int
	large   int       // of the runners, those with a large batch
	crowded time.Time // when the last large batch was served: many come at once then
	started time.Time // when the last statement was sent
	watched bool      // the timer that looks after those who wait runs

	spare sync.Pool // of *errand: there are two for every lock
}

const (
	largestBatch = 256
	largeBatch   = 8
	fewRunners   = 3  // at once, without a large batch
	mostRunners  = 16 // if statements take long
	slow         = 20 * time.Millisecond
	// A statement has one deadline. What may not wait so long goes alone, as
	// others should not be cut off by it.
	shortestShared = time.Second
)

// errand is one request on its way.
type errand[Q, A any] struct {
	ctx     context.Context // carries values only
	request Q
	limit   time.Duration
	since   time.Time
	answers chan answer[A] // gets one, or errNoAnswer and then the one that came too late
	left    atomic.Bool    // nobody waits for it any more
	single  [1]*errand[Q, A]
}

// errNotSent is the answer to a request that waited for its turn in vain, or
// that nobody waited for any more.
var errNotSent = fmt.Errorf("%w: %w: the database was busy for too long", repository.ErrTransient, repository.ErrNotExecuted)

// send takes a request on its way, for at most limit.
func (l *lane[Q, A]) send(ctx context.Context, request Q, limit time.Duration) *errand[Q, A] {
	e, _ := l.spare.Get().(*errand[Q, A])
	if e == nil {
		e = &errand[Q, A]{answers: make(chan answer[A], 2)}
		e.single[0] = e
	}
	e.ctx, e.request, e.limit, e.since = ctx, request, limit, time.Now()
	if l.together == nil || limit < shortestShared {
		l.background.run(func() { l.one(e, 0) })
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free(e.since) {
		l.run(e.single[:])
		return e
	}
	l.waiting = append(l.waiting, e)
	l.watch()
	return e
}

// finish gives back an errand whose one answer was read.
func (l *lane[Q, A]) finish(e *errand[Q, A]) {
	var none Q
	e.ctx, e.request = nil, none
	l.spare.Put(e)
}

// free reports whether a request may go now. The caller holds l.mu.
func (l *lane[Q, A]) free(now time.Time) bool {
	return l.runners == 0 || l.runners < mostRunners && now.Sub(l.started) >= slow ||
		l.runners < fewRunners && l.large == 0 && now.Sub(l.crowded) >= slow
}

// run starts a runner. The caller holds l.mu.
func (l *lane[Q, A]) run(batch []*errand[Q, A]) {
	l.begin(len(batch))
	l.background.run(func() {
		batch := l.gather(batch)
		for len(batch) > 0 && l.serve(batch) {
			batch = l.next(len(batch))
		}
	})
}

// gather adds to a runner's first batch what other goroutines are about to send,
// when many come at once: those whose answers came together are ready to run now,
// and do so before this one goes on. If nobody is, no time is lost.
func (l *lane[Q, A]) gather(batch []*errand[Q, A]) []*errand[Q, A] {
	l.mu.Lock()
	crowded := time.Since(l.crowded) < slow
	l.mu.Unlock()
	if !crowded {
		return batch
	}
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return batch
	}
	n := min(len(l.waiting), largestBatch-len(batch))
	all := slices.Concat(batch, l.waiting[:n])
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	if len(batch) < largeBatch && len(all) >= largeBatch {
		l.large++
	}
	return all
}

// begin counts a runner with a batch of n, and end counts it no more. The caller
// holds l.mu.
func (l *lane[Q, A]) begin(n int) {
	l.started = time.Now()
	l.runners++
	if n >= largeBatch {
		l.large++
	}
}

func (l *lane[Q, A]) end(n int) {
	l.runners--
	if n >= largeBatch {
		l.large--
		l.crowded = time.Now()
	}
}

// next is what has come in meanwhile, for a runner that has served n. Without any
// it ends, and also if another one has a large batch, and so will have the next
// one: two would share what makes one large.
func (l *lane[Q, A]) next(n int) (batch []*errand[Q, A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(n)
	if l.large == 0 {
		batch = l.take()
	}
	if len(batch) > 0 {
		l.begin(len(batch))
	}
	return batch
}

// take takes from those that wait. The caller holds l.mu.
func (l *lane[Q, A]) take() []*errand[Q, A] {
	n := min(len(l.waiting), largestBatch)
	batch := l.waiting[:n:n]
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	return batch
}

// watch looks after a while whether somebody still waits for a statement that
// was sent before, or has waited for too long. The caller holds l.mu.
func (l *lane[Q, A]) watch() {
	if l.watched {
		return
	}
	l.watched = true
	time.AfterFunc(slow, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watched = false
		now := time.Now()
		for len(l.waiting) > 0 && now.Sub(l.waiting[0].since) > l.waiting[0].limit {
			l.waiting[0].answers <- answer[A]{err: errNotSent}
			l.waiting = l.waiting[1:]
		}
		if len(l.waiting) > 0 && l.free(now) {
			l.run(l.take())
		}
		if len(l.waiting) > 0 {
			l.watch()
		}
	})
}

// serve answers a batch, and reports whether the runner is to go on.
func (l *lane[Q, A]) serve(batch []*errand[Q, A]) bool {
	asked := batch[:0]
	for _, e := range batch {
		if e.left.Load() {
			e.answers <- answer[A]{err: errNotSent}
		} else {
			asked = append(asked, e)
		}
	}
	for len(asked) > 1 {
		n, late := l.several(asked, len(batch))
		if late {
			return false
		}
		asked = asked[n:]
	}
	return len(asked) == 0 || l.one(asked[0], len(batch))
}

// statement makes a call about a batch, within limit. If the driver does not
// come back a little later it answers for it, and reports late when it does.
// counted is the size of the batch that the caller runs, 0 if it is no runner.
func (l *lane[Q, A]) statement(batch []*errand[Q, A], limit time.Duration, counted int, call func(context.Context)) (late bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), limit)
	defer cancel()
	done := false // with late guarded by l.mu
	timer := time.AfterFunc(limit+grace(limit), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if done {
			return
		}
		late = true
		for _, e := range batch {
			e.answers <- answer[A]{err: errNoAnswer}
		}
		if counted > 0 {
			if l.end(counted); len(l.waiting) > 0 {
				l.run(l.take())
			}
		}
	})
	call(ctx)
	timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	done = true
	return late
}

// one makes a request by itself.
func (l *lane[Q, A]) one(e *errand[Q, A], counted int) bool {
	var a answer[A]
	late := l.statement(e.single[:], e.limit, counted, func(ctx context.Context) {
		a.value, a.err = l.alone(ctx, e.request)
	})
	e.answers <- a
	return !late
}

// several makes requests together, and returns how many got an answer, or are
// about to: what the repository refuses as a whole, or wants to be asked alone,
// is asked again one by one, aside.
func (l *lane[Q, A]) several(batch []*errand[Q, A], counted int) (n int, late bool) {
	requests := make([]Q, len(batch))
	limit := batch[0].limit
	for i, e := range batch {
		requests[i] = e.request
		limit = min(limit, e.limit)
	}
	var answers []repository.Answer[A]
	var err error
	late = l.statement(batch, limit, counted, func(ctx context.Context) {
		answers, err = l.together(ctx, requests)
	})
	switch {
	case err == nil && len(answers) > 0:
		for i, a := range answers {
			if errors.Is(a.Err, repository.ErrAlone) && !late {
				l.again(batch[i])
			} else {
				batch[i].answers <- answer[A]{a.Value, a.Err}
			}
		}
		return len(answers), late
	case late || err != nil && unknown(err):
		for _, e := range batch {
			e.answers <- answer[A]{err: err}
		}
	default: // one may be the reason, and the others must not suffer for it
		for _, e := range batch {
			l.again(e)
		}
	}
	return len(batch), late
}

func (l *lane[Q, A]) again(e *errand[Q, A]) { l.background.run(func() { l.one(e, 0) }) }
