package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tasks counts what a registry has under way: lock calls, statements, clean-ups. It is a sync.WaitGroup
// whose wait obeys a context and may overlap with new tasks: an Unlock after
// Close still has a statement to run.
//
// Its goroutines stay for a moment when their task is done. A driver needs a deep
// stack, and to grow one anew for every statement costs as much as the rest of
// what a process does for it.
type tasks struct {
	n       atomic.Int64
	awaited atomic.Bool // somebody waits for n to be 0

	mu    sync.Mutex    // guards the fields below
	ended chan struct{} // closed when n has fallen to 0; nil if nobody waits
	idle  []*worker     // the last one was busy last
	fewer int           // the smallest number of idle ones since the last sweep
	swept *time.Timer   // nil while there is nothing to sweep
	done  bool          // no worker stays
}

// worker is a goroutine that takes one task after the other; nil ends it.
type worker struct{ next chan func() }

// How many idle workers stay, and for how long without work.
const (
	mostIdle = 32
	idleTime = time.Second
)

func (t *tasks) run(f func()) {
	t.begin()
	t.mu.Lock()
	if last := len(t.idle) - 1; last >= 0 {
		w := t.idle[last]
		t.idle = t.idle[:last]
		t.fewer = min(t.fewer, last)
		t.mu.Unlock()
		w.next <- f
		return
	}
	t.mu.Unlock()
	w := &worker{next: make(chan func(), 1)}
	go func() {
		busy := true
		defer func() {
			if busy { // f did not return, but ended the goroutine
				t.finish()
			}
		}()
		for f := f; f != nil; f = <-w.next {
			busy = true
			f()
			f, busy = nil, false // what f refers to may be collected
			if !t.rest(w) {
				return
			}
		}
	}()
}

// rest ends a worker's task, and reports whether it stays for another one.
func (t *tasks) rest(w *worker) bool {
	defer t.finish()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done || len(t.idle) >= mostIdle {
		return false
	}
	t.idle = append(t.idle, w)
	if t.swept == nil {
		t.fewer = len(t.idle)
		t.swept = time.AfterFunc(idleTime, t.sweep)
	}
	return true
}

// sweep ends the workers that nobody needed since the last one.
func (t *tasks) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.idle[:t.fewer] {
		w.next <- nil
	}
	t.idle = t.idle[:copy(t.idle, t.idle[t.fewer:])]
	t.fewer = len(t.idle)
	if t.swept = nil; len(t.idle) > 0 && !t.done {
		t.swept = time.AfterFunc(idleTime, t.sweep)
	}
}

// stop lets no worker stay from now on.
func (t *tasks) stop() {
	t.mu.Lock()
	t.done, t.fewer = true, len(t.idle)
	if t.swept != nil {
		t.swept.Stop()
	}
	t.mu.Unlock()
	t.sweep()
}

// begin counts the caller's goroutine as a task until it calls finish.
func (t *tasks) begin() { t.n.Add(1) }

func (t *tasks) finish() {
	if t.n.Add(-1) == 0 && t.awaited.Load() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tell()
	}
}

// tell ends the waiting. The caller holds t.mu.
func (t *tasks) tell() {
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// wait returns when no task runs or ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if t.ended == nil {
		t.ended = make(chan struct{})
	}
	ended := t.ended
	t.awaited.Store(true)
	if t.n.Load() == 0 { // whoever made it so may not have seen that somebody waits
		t.tell()
	}
	t.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
