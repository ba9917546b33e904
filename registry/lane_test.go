package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/repository"
)

// counter is a store behind a lane that says the double of a number. Every
// statement takes a millisecond, or until it is let go.
type counter struct {
	mu      sync.Mutex // guards the fields below
	batches [][]int
	singles []int
	hang    map[int]chan struct{} // a statement with this number waits for it
	refuse  error                 // of batches
	alone   int                   // is answered with ErrAlone
	most    int                   // answers of one batch
}

func (c *counter) wait(ctx context.Context, numbers ...int) error {
	time.Sleep(time.Millisecond)
	for _, n := range numbers {
		c.mu.Lock()
		hang := c.hang[n]
		c.mu.Unlock()
		if hang != nil {
			select {
			case <-hang:
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", repository.ErrTransient, ctx.Err())
			}
		}
	}
	return nil
}

func (c *counter) one(ctx context.Context, n int) (int, error) {
	c.mu.Lock()
	c.singles = append(c.singles, n)
	c.mu.Unlock()
	return 2 * n, c.wait(ctx, n)
}

func (c *counter) many(ctx context.Context, numbers []int) ([]repository.Answer[int], error) {
	c.mu.Lock()
	c.batches = append(c.batches, slices.Clone(numbers))
	refuse, alone, most := c.refuse, c.alone, c.most
	c.mu.Unlock()
	if err := c.wait(ctx, numbers...); err != nil || refuse != nil {
		return nil, errors.Join(err, refuse)
	}
	var answers []repository.Answer[int]
	for _, n := range numbers {
		a := repository.Answer[int]{Value: 2 * n}
		if n == alone {
			a = repository.Answer[int]{Err: repository.ErrAlone}
		}
		answers = append(answers, a)
	}
	if most > 0 {
		answers = answers[:min(most, len(answers))]
	}
	return answers, nil
}

// laneTest runs f with an idle lane in virtual time, and waits for its end.
func laneTest(t *testing.T, f func(t *testing.T, c *counter, l *lane[int, int])) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{hang: make(map[int]chan struct{}), alone: -100}
		var background tasks
		f(t, c, &lane[int, int]{background: &background, alone: c.one, together: c.many})
		background.wait(t.Context())
		background.stop()
	})
}

func want(t *testing.T, e *errand[int, int]) {
	t.Helper()
	if a := <-e.answers; a.err != nil || a.value != 2*e.request {
		t.Errorf("the answer to %d is %d, %v", e.request, a.value, a.err)
	}
}

// all sends numbers, the first of which goes alone.
func (l *lane[Q, A]) all(numbers ...Q) (all []*errand[Q, A]) {
	for _, n := range numbers {
		all = append(all, l.send(context.Background(), n, 5*time.Second))
	}
	return all
}

func TestLaneGathers(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		for _, e := range l.all(1, 2, 3, 4, 5, 6) {
			want(t, e)
		}
		slices.Sort(c.singles)
		if !slices.Equal(c.singles, []int{1, 2, 3}) || len(c.batches) != 1 || !slices.Equal(c.batches[0], []int{4, 5, 6}) {
			t.Errorf("alone %v, together %v; want 1, 2 and 3, then 4, 5 and 6", c.singles, c.batches)
		}
		for _, e := range l.all(7) {
			want(t, e)
		}
		if !slices.Equal(c.singles, []int{1, 2, 3, 7}) {
			t.Errorf("alone %v: a lone request goes alone", c.singles)
		}
	})
}

func TestLaneIsBounded(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		c.most = 100
		var numbers []int
		for n := range 700 {
			numbers = append(numbers, n)
		}
		for _, e := range l.all(numbers...) {
			want(t, e)
		}
		for _, b := range c.batches {
			if len(b) > largestBatch {
				t.Errorf("a batch of %d", len(b))
			}
		}
		if n := len(c.batches) + len(c.singles); n > 20 {
			t.Errorf("%d statements for 700 requests", n)
		}
	})
}

func TestLaneDoesNotSendForNobody(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		all := l.all(-1, -2, 1, 2, 3)
		all[3].left.Store(true)
		for _, i := range []int{0, 1, 2, 4} {
			want(t, all[i])
		}
		if a := <-all[3].answers; !errors.Is(a.err, repository.ErrNotExecuted) {
			t.Errorf("err = %v, want ErrNotExecuted", a.err)
		}
		slices.Sort(c.singles)
		if !slices.Equal(c.singles, []int{-2, -1, 1, 3}) || len(c.batches) != 0 {
			t.Errorf("alone %v, together %v", c.singles, c.batches)
		}
	})
}

func TestLaneAsksAlone(t *testing.T) {
	for _, refuse := range []error{nil, errors.New("syntax error"), fmt.Errorf("%w: %w: deadlock", repository.ErrTransient, repository.ErrNotExecuted)} {
		laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
			c.refuse, c.alone = refuse, 3
			for _, e := range l.all(-1, -2, 1, 2, 3, 4) {
				want(t, e)
			}
			slices.Sort(c.singles)
			if again := []int{-2, -1, 1, 2, 3, 4}; refuse != nil && !slices.Equal(c.singles, again) || refuse == nil && !slices.Equal(c.singles, []int{-2, -1, 1, 3}) {
				t.Errorf("batches refused with %v: alone %v", refuse, c.singles)
			}
		})
	}
}

func TestLaneUnknown(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		c.refuse = fmt.Errorf("%w: connection lost", repository.ErrTransient)
		all := l.all(1, 2, 3, 4, 5)
		for _, e := range all[:3] {
			want(t, e)
		}
		for _, e := range all[3:] {
			if a := <-e.answers; !unknown(a.err) {
				t.Errorf("err = %v, want one that leaves the outcome open", a.err)
			}
		}
		if len(c.singles) != 3 {
			t.Errorf("alone %v: what may have been executed must not be sent again behind its caller's back", c.singles)
		}
	})
}

// A statement that hangs holds up what was sent with it, not what comes after.
func TestLaneOvertakes(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		for n := range mostRunners - 1 {
			c.hang[n] = make(chan struct{})
		}
		begin := time.Now()
		var hanging []*errand[int, int]
		for n := range mostRunners - 1 {
			hanging = append(hanging, l.all(n)...)
			want(t, l.all(100 + n)[0]) // waits for slow, then overtakes
			time.Sleep(2 * slow)
		}
		if took := time.Since(begin); took > mostRunners*4*slow {
			t.Errorf("%v for what had to overtake", took)
		}
		for _, hang := range c.hang {
			close(hang)
		}
		for _, e := range hanging {
			want(t, e)
		}
	})
}

// What may wait for a short time only is not sent with others.
func TestLaneShort(t *testing.T) {
	laneTest(t, func(t *testing.T, c *counter, l *lane[int, int]) {
		c.hang[1] = make(chan struct{})
		first := l.send(context.Background(), 1, 5*time.Second)
		want(t, l.send(context.Background(), 2, shortestShared/2))
		close(c.hang[1])
		want(t, first)
		if len(c.batches) != 0 {
			t.Errorf("together %v", c.batches)
		}
	})
}
