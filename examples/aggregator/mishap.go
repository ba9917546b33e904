package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// failures are what went wrong and was mended.
type failures struct {
	all, lost int      // deliveries that were given back; those because of a lost lock
	deaths    int      // of workers that should have lived
	unclean   []string // workers that did not end as they should
}

const (
	maxFailures = 5  // of one message: then the fault is not its worker's
	maxDeaths   = 20 // of workers: then something kills them all
)

// takeBack has a message that a worker could not handle sent again.
func (c *coordinator) takeBack(p *process, r report) error {
	d := p.outstanding[r.ID]
	delete(p.outstanding, r.ID)
	c.failures.all++
	if r.Lost != "" {
		c.failures.lost++
		text := fmt.Sprintf("worker %d lost the lock of %s: %s; its message is sent again", p.number, d.Group, r.Lost)
		if t := c.takeover; t != nil && t.delivery == r.ID {
			t.Lost = r.Lost
			text = c.screen.yellow(text)
		}
		c.screen.note("%s", text)
	}
	if d.failures++; d.failures == maxFailures {
		return fmt.Errorf("message %d of %s failed %d times, at last on worker %d: %s",
			d.Seq, d.Group, d.failures, p.number, strings.ReplaceAll(r.Error, "\n", "; ")) // joined errors come in lines
	}
	c.feed.giveBack(d)
	return nil
}

// strike kills or stops a worker that stalls in the middle of a group.
func (c *coordinator) strike(ctx context.Context, p *process, r report) {
	if c.takeover != nil {
		p.resume() // once is enough
		return
	}
	d := p.outstanding[r.ID]
	c.feed.victim = ""
	// The table tells what a waiting worker is told: who has it, for how long.
	var left time.Duration
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if locks, err := c.repo.List(ctx); err == nil {
		for _, l := range locks {
			if l.Name == d.Group {
				left = l.Remaining
			}
		}
	}
	if d.Stall == stopped {
		p.stop()
		c.stopped = p
		// As a broker does when an acknowledgement is long overdue. The worker
		// still has them, and goes on with them when it is continued.
		c.sendAgain(p)
	} else {
		p.kill()
	}
	c.struck = time.Now()
	c.takeover = &takeover{Group: d.Group, Mishap: d.Stall, Worker: p.number, PID: p.pid(), LeaseLeft: inMilliseconds(left), delivery: r.ID}
	c.tallies[p.number-1].Mishap = d.Stall
	c.screen.note("%s", c.screen.yellow(fmt.Sprintf("worker %d %s in the middle of %s, which stays locked for %s",
		p.number, d.Stall, d.Group, c.takeover.LeaseLeft)))
}

// resumeInTime continues the stopped worker once its lease is over and another
// one has finished its group, or will not.
func (c *coordinator) resumeInTime() {
	if c.stopped == nil {
		return
	}
	since := time.Since(c.struck)
	patience := c.config.TTL + 2*c.config.Work + 10*time.Second
	if since > c.config.TTL && c.takeover.FinishedBy != 0 || since > patience {
		c.takeover.ContinuedAfter = inMilliseconds(since)
		c.screen.note("%s", c.screen.yellow(fmt.Sprintf("worker %d continues after %s", c.stopped.number, c.takeover.ContinuedAfter)))
		c.resume()
	}
}

func (c *coordinator) resume() {
	if c.stopped != nil {
		c.stopped.resume()
		c.stopped = nil
	}
}

// sendAgain has others do what a worker has not acknowledged.
func (c *coordinator) sendAgain(p *process) {
	for _, id := range slices.Sorted(maps.Keys(p.outstanding)) {
		c.feed.giveBack(p.outstanding[id])
	}
}

// bury takes note of a worker's end. Unless it was asked to end, its messages
// go to others and another worker takes its place.
func (c *coordinator) bury(p *process, how string) error {
	c.workers = slices.DeleteFunc(c.workers, func(w *process) bool { return w == p })
	if p.asked {
		if how != "" {
			c.failures.unclean = append(c.failures.unclean, fmt.Sprintf("worker %d (pid %d) ended with %s", p.number, p.pid(), how))
		}
		return nil
	}
	if !p.ready {
		return fmt.Errorf("worker %d ended before it was ready (%s)", p.number, how)
	}
	_ = p.in.Close()
	if p == c.stopped {
		c.stopped = nil
	}
	c.tallies[p.number-1].Mishap = killed
	c.sendAgain(p)
	if c.failures.deaths++; c.failures.deaths > maxDeaths {
		return errors.New("too many workers died")
	}
	if err := c.start(); err != nil {
		return err
	}
	if how == "" {
		how = "exit status 0"
	}
	c.screen.note("worker %d ended (%s): its %d messages are sent again, worker %d replaces it",
		p.number, how, len(p.outstanding), len(c.tallies))
	return nil
}
