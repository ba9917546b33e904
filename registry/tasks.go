package registry

import (
	"context"
	"sync"
)

// tasks counts what a registry has under way: lock calls, statements, clean-ups. It is a sync.WaitGroup
// whose wait obeys a context and may overlap with new tasks: an Unlock after
// Close still has a statement to run.
type tasks struct {
	mu    sync.Mutex // guards the fields below
	n     int
	ended chan struct{} // closed when n falls to 0; nil if nobody waits
}

func (t *tasks) run(f func()) {
	t.begin()
	go func() {
		defer t.done()
		f()
	}()
}

// begin counts the caller's goroutine as a task until it calls done.
func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// wait returns when no task runs or ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.ended == nil {
		t.ended = make(chan struct{})
	}
	ended := t.ended
	t.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
