package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intlock/intlock/repository"
)

// lane takes requests of one kind to the repository. While one is under way
// those that come in wait, and then go together, in one statement: so the
// database commits once for many. Nobody waits for others to come: a request
// that finds the lane empty goes at once, by itself.
//
// A statement that takes long, because a row is locked or the network is dead,
// does not hold up what comes after it: then the lane gets another runner.
type lane[Q, A any] struct {
	background *tasks
	alone      func(context.Context, Q) (A, error)
	together   func(context.Context, []Q) ([]repository.Answer[A], error) // nil: the repository takes one at a time

	mu      sync.Mutex // guards the fields below
	waiting []*errand[Q, A]
	runners int
	started time.Time // when the last statement was sent
	watched bool      // the timer that looks for slow statements runs
}

const (
	largestBatch = 256
	mostRunners  = 16
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
	answers chan answer[A]
	left    atomic.Bool // nobody waits for it any more
}

// errLeft is the answer to a request that was not sent, as nobody waited for it.
var errLeft = fmt.Errorf("%w: %w: nobody waited for the answer", repository.ErrTransient, repository.ErrNotExecuted)

// send takes a request on its way, for at most limit.
func (l *lane[Q, A]) send(ctx context.Context, request Q, limit time.Duration) *errand[Q, A] {
	e := &errand[Q, A]{ctx: ctx, request: request, limit: limit, answers: make(chan answer[A], 1)}
	if l.together == nil || limit < shortestShared {
		l.background.run(func() { l.one(e) })
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runners == 0 || l.runners < mostRunners && time.Since(l.started) > slow {
		l.run([]*errand[Q, A]{e})
		return e
	}
	l.waiting = append(l.waiting, e)
	l.watch()
	return e
}

// run starts a runner. The caller holds l.mu.
func (l *lane[Q, A]) run(batch []*errand[Q, A]) {
	l.runners++
	l.started = time.Now()
	l.background.run(func() {
		for len(batch) > 0 {
			l.serve(batch)
			batch = l.next()
		}
	})
}

// next is what has come in meanwhile. Without any, the runner ends.
func (l *lane[Q, A]) next() []*errand[Q, A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.take()
	if len(batch) == 0 {
		l.runners--
	} else {
		l.started = time.Now()
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
// was sent before. The caller holds l.mu.
func (l *lane[Q, A]) watch() {
	if l.watched {
		return
	}
	l.watched = true
	time.AfterFunc(slow, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watched = false
		if len(l.waiting) == 0 {
			return
		}
		if l.runners < mostRunners && time.Since(l.started) >= slow {
			l.run(l.take())
		}
		if len(l.waiting) > 0 {
			l.watch()
		}
	})
}

// serve answers a batch. It returns when the lane is free for the next one.
func (l *lane[Q, A]) serve(batch []*errand[Q, A]) {
	asked := batch[:0]
	for _, e := range batch {
		if e.left.Load() {
			e.answer(errLeft)
		} else {
			asked = append(asked, e)
		}
	}
	for len(asked) > 1 {
		asked = asked[l.several(asked):]
	}
	if len(asked) == 1 {
		l.one(asked[0])
	}
}

// one makes a request by itself.
func (l *lane[Q, A]) one(e *errand[Q, A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), e.limit)
	defer cancel()
	value, err := l.alone(ctx, e.request)
	e.answers <- answer[A]{value, err}
}

// several makes requests together, and returns how many got an answer, or are
// about to: what the repository refuses as a whole, or wants to be asked alone,
// is asked again one by one, aside.
func (l *lane[Q, A]) several(batch []*errand[Q, A]) int {
	requests := make([]Q, len(batch))
	limit := batch[0].limit
	for i, e := range batch {
		requests[i] = e.request
		limit = min(limit, e.limit)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), limit)
	defer cancel()
	answers, err := l.together(ctx, requests)
	switch {
	case err == nil && len(answers) > 0:
		for i, a := range answers {
			if errors.Is(a.Err, repository.ErrAlone) {
				l.background.run(func() { l.one(batch[i]) })
			} else {
				batch[i].answers <- answer[A]{a.Value, a.Err}
			}
		}
		return len(answers)
	case err != nil && unknown(err):
		for _, e := range batch {
			e.answer(err)
		}
	default: // one may be the reason, and the others must not suffer for it
		for _, e := range batch {
			l.background.run(func() { l.one(e) })
		}
	}
	return len(batch)
}

func (e *errand[Q, A]) answer(err error) {
	e.answers <- answer[A]{err: err}
}
