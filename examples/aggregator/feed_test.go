package main

import (
	"reflect"
	"testing"
)

func everything(f *feed) (all []delivery) {
	for d, ok := f.next(); ok; d, ok = f.next() {
		all = append(all, d)
	}
	return all
}

func TestTheSameSeedMakesTheSameFeed(t *testing.T) {
	first, second, other := newFeed(30, 301, 7, none), newFeed(30, 301, 7, none), newFeed(30, 301, 8, none)
	if !reflect.DeepEqual(first, second) {
		t.Error("two feeds of one seed differ")
	}
	if reflect.DeepEqual(first, other) {
		t.Error("feeds of two seeds are the same")
	}
}

func TestEveryMessageIsFed(t *testing.T) {
	f := newFeed(30, 301, 7, killed)
	late := len(f.late)
	type message struct {
		group string
		seq   int
	}
	seen := make(map[message]int)
	ids := make(map[int]bool)
	stalls := 0
	for _, d := range everything(f) {
		seen[message{d.Group, d.Seq}]++
		ids[d.ID] = true
		if d.Stall == killed {
			stalls++
		}
	}
	if len(seen) != 301 {
		t.Errorf("messages: got %d, want 301", len(seen))
	}
	if stalls != len(f.amounts[f.victim]) || stalls == 0 {
		t.Errorf("deliveries of the group to kill a worker in: got %d, want each message once", stalls)
	}
	before := len(ids)
	f.released(groupName(0))
	for _, group := range f.groups {
		f.released(group)
		f.released(group) // a second report of it changes nothing
	}
	for _, d := range everything(f) {
		ids[d.ID] = true
	}
	if got := len(ids) - before; got != late || late == 0 {
		t.Errorf("late messages: got %d, want %d", got, late)
	}
}

func TestTheAuditFindsDamage(t *testing.T) {
	f := newFeed(4, 20, 7, none)
	right := func(group string) output { return output{Group: group, Worker: 1, Result: result(f.amounts[group])} }
	wrong := right(f.groups[2])
	wrong.Result = "1 + 1 = 3"
	got := newAudit(f, []output{right(f.groups[0]), right(f.groups[1]), right(f.groups[1]), wrong})
	got.findings = nil
	want := audit{Released: 3, Missing: 1, Doubled: 1, Wrong: 1, MessagesLost: 5, MessagesDoubled: 5}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
