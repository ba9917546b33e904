package registry

import (
	"context"
	"sync"
	"sync/atomic"
)

// tasks counts what a registry has under way: lock calls, statements, clean-ups. It is a sync.WaitGroup
// whose wait obeys a context and may overlap with new tasks: an Unlock after
// Close still has a statement to run.
type tasks struct {
	n       atomic.Int64
	awaited atomic.Bool // somebody waits for n to be 0

	mu    sync.Mutex    // guards the field below
	ended chan struct{} // closed when n has fallen to 0; nil if nobody waits
}

func (t *tasks) run(f func()) {
	t.begin()
	go func() {
		defer t.done()
		f()
	}()
}

// begin counts the caller's goroutine as a task until it calls done.
func (t *tasks) begin() { t.n.Add(1) }

func (t *tasks) done() {
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
