package registry_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
)

// believers are the holds of one key. Never may two say that they have it.
type believers struct {
	t     *testing.T
	key   string
	mu    sync.Mutex // guards holds, and is held while they are asked
	holds []*registry.Hold
}

func (b *believers) add(h *registry.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = append(b.holds, h)
}

// look asks every hold. A hold never says yes after it said no, so two answers
// need not come at one moment.
func (b *believers) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	believing := 0
	for _, h := range b.holds {
		if h.Held() {
			believing++
		}
	}
	if believing > 1 {
		b.t.Errorf("%s: %d holds say at once that they are held", b.key, believing)
	}
}

func (b *believers) remove(h *registry.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = slices.DeleteFunc(b.holds, func(other *registry.Hold) bool { return other == h })
}

// watch looks all the time until the function that it returns is called.
func watch(all ...*believers) (stop func()) {
	enough := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-enough:
				return
			case <-time.After(2 * time.Millisecond):
			}
			for _, b := range all {
				b.look()
			}
		}
	})
	return func() { close(enough); looking.Wait() }
}
