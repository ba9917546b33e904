package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// handOver has a process hold a lock, and this one wait for it.
func handOver(ctx context.Context, s settings, r *report) error {
	for _, vendor := range []string{"postgres", "sqlite", "mariadb", "mysql"} {
		group := pick(kinds(vendor), woken, durable, "Spring's algorithm", "pglock 1.16, lease 1 s", "advisory lock", "GET_LOCK")
		if vendor == "postgres" && len(group) > 0 {
			group = append(group, here(redisKinds()[:1])...)
		}
		for _, k := range group {
			times := 40 * s.rounds
			switch k.name {
			case "Spring's algorithm", "redsync":
				times = 10 * s.rounds
			case "pglock 1.16, lease 1 s":
				times = 3 * s.rounds
			}
			took, err := measureHandOver(ctx, k, times)
			if err != nil {
				return fmt.Errorf("%s: %w", k.id(), err)
			}
			var all series
			all.add(newRound(took, 0))
			r.add(entry{Scenario: "hand-over", Vendor: vendor, Kind: k.name, series: all})
		}
	}
	return nil
}

func measureHandOver(ctx context.Context, k kind, times int) (took []time.Duration, err error) {
	l, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(ctx, l)
	other, err := spawn("holder", k, "hand-over")
	if err != nil {
		return nil, err
	}
	defer other.stop()
	for range times {
		if _, err := other.line(); err != nil {
			return nil, err
		}
		type got struct {
			at     time.Time
			unlock func() error
			err    error
		}
		gots := make(chan got, 1)
		go func() {
			unlock, err := l.lock(ctx, "hand-over")
			gots <- got{time.Now(), unlock, err}
		}()
		other.say("go on")
		text, err := other.line()
		if err != nil {
			return nil, err
		}
		var begin, returned int64
		if _, err := fmt.Sscan(text, &begin, &returned); err != nil {
			return nil, err
		}
		g := <-gots
		if g.err != nil {
			return nil, g.err
		}
		took = append(took, time.Duration(g.at.UnixNano()-begin)) // from the start of its unlock
		if err := g.unlock(); err != nil {
			return nil, err
		}
		other.say("next")
	}
	return took, nil
}

// crowd has four processes of 64 goroutines each want one lock.
func crowd(ctx context.Context, s settings, r *report) error {
	const processes, goroutines = 4, 64
	length := min(10*time.Second, s.time*15)
	for _, work := range []time.Duration{time.Millisecond, 0} {
		for _, k := range pick(kinds("postgres"), woken, durable, "Spring's algorithm", "advisory lock") {
			rounds := 1
			if k.name == woken {
				rounds = max(1, s.rounds/2)
			}
			for range rounds {
				var children []*process
				stop := func() {
					for _, c := range children {
						c.stop()
					}
				}
				for range processes {
					c, err := spawn("crowd", k, "crowd", fmt.Sprint(goroutines), work.String(), length.String())
					if err != nil {
						stop()
						return err
					}
					children = append(children, c)
				}
				for _, c := range children {
					if _, err := c.line(); err != nil {
						stop()
						return err
					}
				}
				for _, c := range children {
					c.say("start")
				}
				result := crowdResult{Kind: k.name, Work: work}
				for _, c := range children {
					text, err := c.line()
					if err != nil {
						stop()
						return err
					}
					var counts []int
					if err := json.Unmarshal([]byte(text), &counts); err != nil {
						stop()
						return err
					}
					sum := 0
					for _, n := range counts {
						sum += n
						if n == 0 {
							result.Unserved++
						}
					}
					result.PerProcess = append(result.PerProcess, sum)
				}
				stop()
				result.seconds = length.Seconds()
				r.crowds = append(r.crowds, result)
			}
		}
	}
	return nil
}

type crowdResult struct {
	Kind       string
	Work       time.Duration
	PerProcess []int
	Unserved   int
	seconds    float64
}

func (c crowdResult) rate() float64 {
	sum := 0
	for _, n := range c.PerProcess {
		sum += n
	}
	return float64(sum) / c.seconds
}

// least is the smallest share of a process.
func (c crowdResult) least() float64 {
	sum, least := 0, -1
	for _, n := range c.PerProcess {
		sum += n
		if least < 0 || n < least {
			least = n
		}
	}
	return float64(least) / float64(max(sum, 1))
}
