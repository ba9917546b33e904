package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/intlock/intlock/repository"
)

// coordinator starts the workers, deals the messages out to them, and keeps
// count of what they report. One goroutine does all of it; the readers of the
// workers' pipes only pass reports to it.
type coordinator struct {
	config  workerConfig // of each worker, but for the number
	feed    *feed
	screen  *screen
	repo    repository.LockRepository // to look at the locks; takes none
	reports chan report

	workers []*process // alive
	tallies []*tally   // by worker number, dead ones too
	groups  map[string]bool
	rate    rate
	begun   time.Time

	takeover *takeover
	struck   time.Time // when the takeover's mishap happened
	stopped  *process  // the worker that is stopped now
	failures failures
}

func newCoordinator(c workerConfig, f *feed, s *screen, repo repository.LockRepository) *coordinator {
	return &coordinator{
		config: c, feed: f, screen: s, repo: repo, begun: time.Now(),
		reports: make(chan report, 64), groups: make(map[string]bool),
	}
}

// start adds a worker.
func (c *coordinator) start() error {
	config := c.config
	config.Number = len(c.tallies) + 1
	p, err := startProcess(config, c.reports)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", config.Number, err)
	}
	c.workers = append(c.workers, p)
	c.tallies = append(c.tallies, &tally{Worker: p.number, PID: p.pid()})
	return nil
}

// run deals until everything is acknowledged or ctx ends, then ends the
// workers. It returns once the last of them is gone.
func (c *coordinator) run(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var err error
	for err == nil && ctx.Err() == nil && !c.finished() {
		c.deal()
		select {
		case r := <-c.reports:
			err = c.take(ctx, r)
		case <-ticker.C:
			c.showProgress()
			c.resumeInTime()
		case <-ctx.Done():
		}
	}
	for _, p := range c.workers {
		p.waiting = 0 // its last status is older than its last report
	}
	c.showProgress()
	c.screen.end()
	c.finish()
	return err
}

func (c *coordinator) finished() bool {
	for _, p := range c.workers {
		if len(p.outstanding) > 0 {
			return false
		}
	}
	return c.feed.left() == 0
}

// deal hands out one delivery after the other, until every hand of every
// worker has one.
func (c *coordinator) deal() {
	for more := true; more; {
		more = false
		for _, p := range c.workers {
			// What a stopped worker got now would lie in its pipe.
			if p.ready && p != c.stopped && len(p.outstanding) < c.config.Parallel {
				if d, ok := c.feed.next(); ok {
					p.send(d)
					more = true
				}
			}
		}
	}
}

func (c *coordinator) take(ctx context.Context, r report) error {
	p := r.from
	switch r.Kind {
	case isReady:
		p.ready = true
	case isStatus:
		p.waiting = r.Waiting
	case isLog:
		c.screen.note("worker %d says: %s", p.number, r.Error)
	case isDone:
		c.acknowledge(p, r)
	case isFailed:
		return c.takeBack(p, r)
	case isInside:
		c.strike(ctx, p, r)
	case isExit:
		return c.bury(p, r.Error)
	}
	return nil
}

func (c *coordinator) acknowledge(p *process, r report) {
	d := p.outstanding[r.ID]
	delete(p.outstanding, r.ID)
	c.tallies[p.number-1].count(r)
	if r.Outcome != released && r.Outcome != late {
		return
	}
	// "Late" tells of a release too: its worker may have died before it said so.
	if !c.groups[d.Group] {
		c.groups[d.Group] = true
		c.feed.released(d.Group)
	}
	if t := c.takeover; t != nil && t.Group == d.Group && t.FinishedBy == 0 {
		t.FinishedBy, t.After = p.number, inMilliseconds(time.Since(c.struck))
		c.screen.note("%s", c.screen.yellow(fmt.Sprintf("worker %d finished %s, %s after worker %d was %s",
			t.FinishedBy, t.Group, t.After, t.Worker, t.Mishap)))
	}
}

// finishWithin is more than a worker needs to give back its locks: Close waits
// a second for work that does not heed its context.
const finishWithin = 5 * time.Second

// finish ends the workers, those that do not end in time by force. Reports
// still count: on Ctrl-C the last acknowledgements are under way.
func (c *coordinator) finish() {
	c.resume()
	for _, p := range c.workers {
		p.finish()
	}
	late := time.NewTimer(finishWithin)
	defer late.Stop()
	for len(c.workers) > 0 {
		select {
		case r := <-c.reports:
			if r.Kind != isFailed && r.Kind != isInside {
				_ = c.take(context.Background(), r) // only those two can fail
			}
		case <-late.C:
			for _, p := range c.workers {
				p.kill()
			}
		}
	}
}

func (c *coordinator) showProgress() {
	handled, handovers, waiting := 0, 0, 0
	for _, t := range c.tallies {
		handled += t.Messages
		handovers += t.Handovers
	}
	for _, p := range c.workers {
		waiting += p.waiting
	}
	c.screen.progress(len(c.groups), len(c.feed.groups),
		fmt.Sprintf("%5.0f messages/s   hand-overs %d   waiting %d", c.rate.at(time.Now(), handled), handovers, waiting))
}

func (c *coordinator) pids() string {
	var all []string
	for _, p := range c.workers {
		all = append(all, fmt.Sprint(p.pid()))
	}
	return strings.Join(all, " ")
}
