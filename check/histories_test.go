package check

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
)

// theSeed decides a run. It is printed so that the run can be repeated.
func theSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 24
	}
	fmt.Printf("%s: -seed %d\n", t.Name(), seed)
	return seed
}

// TestHistories runs four workers on each database under faults, and checks what they
// recorded.
func TestHistories(t *testing.T) {
	for _, vendor := range testdb.Vendors() {
		t.Run(vendor, func(t *testing.T) {
			s := newScene(t, vendor, theSeed(t))
			length := *duration
			if vendor == "mysql" { // a commit is dearer there
				length *= 2
			}
			s.disturb(length, slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
				return f.not == "sqlite" && vendor == "sqlite" || f.not == "servers" && vendor != "sqlite"
			}))
			s.judge(*least)
		})
	}
}

// judge checks what has happened, of which there must be so many operations.
func (s *scene) judge(least int) {
	t := s.t
	h, given, writes, n := s.history()
	begin := time.Now()
	for _, f := range h.Overlaps() {
		t.Error("overlap: ", f)
	}
	for _, f := range h.Forgotten(given) {
		t.Error("forgotten: ", f)
	}
	for _, f := range Stale(writes) {
		t.Error("stale: ", f)
	}
	operations, bad := h.Linearizable(given, time.Minute)
	for _, f := range bad {
		t.Error("order: ", f)
	}
	s.summary(h, given, operations, n, time.Since(begin))
	if operations < least || n < least/100 {
		t.Errorf("too little happened to say anything: %d operations and %d writes, want %d and %d", operations, n, least, least/100)
	}
}

// summary prints what has happened.
func (s *scene) summary(h *History, given map[string][]LeaseID, operations, writes int, took time.Duration) {
	outcomes, leases, confirmed := map[Kind]int{}, 0, 0
	for _, a := range h.Attempts {
		outcomes[a.Outcome]++
		if a.Outcome == Grant && a.End != Free {
			outcomes[Lost]++
		}
	}
	for _, ids := range given {
		for _, id := range ids {
			leases++
			if h.Leases[id] != nil {
				confirmed++
			}
		}
	}
	times := 0
	var list string
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		times += s.done[name]
		list += fmt.Sprintf("\n    %-32s %d", name, s.done[name])
	}
	fmt.Printf("%s: %d lock calls: %d granted (%d of them lost), %d refused, %d without an answer\n"+
		"  %d leases in the database, %d of them unknown to their clients; %d fenced writes\n"+
		"  %d operations through porcupine in %v; %d faults:%s\n", s.t.Name(), len(h.Attempts), outcomes[Grant], outcomes[Lost], outcomes[Nothing], outcomes[Try],
		leases, leases-confirmed, writes, operations, took.Round(time.Millisecond), times, list)
}
