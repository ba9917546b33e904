package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// feed is everything that has to be delivered, in the order in which it goes
// out. Which worker gets a delivery is not its business: whoever is free does,
// so that the messages of one group end up all over the workers.
type feed struct {
	again  []delivery // given back by a worker that failed or died; goes first
	queue  []delivery
	late   map[string]delivery // by group: what is sent once the group is released
	nextID int

	amounts map[string][]int64 // by group: what was fed, in sequence
	groups  []string
	mishap  mishap
	victim  string // the group in which it happens to a worker; none if empty
}

// Of every hundred messages so many are sent twice, and of every hundred
// groups so many get one more message after their release.
const (
	duplicatePercent = 10
	latePercent      = 20
)

// openGroups is how many groups arrive at the same time. Shuffling everything
// would leave each group to one message at a time, and nothing to lock.
const openGroups = 24

// newFeed makes the same feed for the same seed.
func newFeed(groups, messages int, seed uint64, m mishap) *feed {
	f := &feed{late: make(map[string]delivery), amounts: make(map[string][]int64), mishap: m}
	random := rand.New(rand.NewPCG(seed, 0))
	if m != none {
		f.victim = groupName(groups / 3)
	}

	type placed struct {
		delivery
		place float64
	}
	var all []placed
	scatter := float64(openGroups * messages / groups)
	for g := range groups {
		name := groupName(g)
		size := messages / groups
		if g < messages%groups {
			size++
		}
		f.groups = append(f.groups, name)
		for seq := 1; seq <= size; seq++ {
			d := delivery{Group: name, Seq: seq, Size: size, Amount: 1 + random.Int64N(999)}
			f.amounts[name] = append(f.amounts[name], d.Amount)
			place := float64(g*messages/groups) + random.Float64()*scatter
			all = append(all, placed{d, place})
			// The victim gets no duplicates, so that the message that completes
			// it is its last one: no second worker will stall on it.
			if random.IntN(100) < duplicatePercent && name != f.victim {
				all = append(all, placed{d, place + random.Float64()*10})
			}
			if seq == size && random.IntN(100) < latePercent {
				f.late[name] = d
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		switch {
		case a.place < b.place:
			return -1
		case a.place > b.place:
			return 1
		}
		return 0
	})
	for _, p := range all {
		f.queue = append(f.queue, f.number(p.delivery))
	}
	return f
}

func groupName(n int) string { return fmt.Sprintf("order-%04d", n+1) }

func (f *feed) number(d delivery) delivery {
	f.nextID++
	d.ID = f.nextID
	return d
}

// next takes the next delivery out of the feed.
func (f *feed) next() (delivery, bool) {
	for _, from := range []*[]delivery{&f.again, &f.queue} {
		if len(*from) > 0 {
			d := (*from)[0]
			*from = (*from)[1:]
			d.Stall = none // also of a message that is sent again
			if d.Group == f.victim {
				d.Stall = f.mishap
			}
			return d, true
		}
	}
	return delivery{}, false
}

// released puts the late message of a group into the feed.
func (f *feed) released(group string) {
	if d, ok := f.late[group]; ok {
		delete(f.late, group)
		f.queue = slices.Insert(f.queue, 0, f.number(d))
	}
}

// giveBack takes a delivery that was not acknowledged. It may have taken
// effect all the same; the next worker will find out.
func (f *feed) giveBack(d delivery) { f.again = append(f.again, f.number(d)) }

// left is how many deliveries have not been handed out.
func (f *feed) left() int { return len(f.again) + len(f.queue) }
