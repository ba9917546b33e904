package check

import (
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/repository"
)

// story makes a history of one key: each grant is client, step of the token, and the
// times of the call, of its return, of the unlock's call and of the unlock's return. A
// lease that is lost has no unlock: it believed until the third time.
type told struct {
	client                    string
	step                      int64
	call, back, unlock, freed int64
}

func story(all []told) (*History, map[string][]LeaseID) {
	h, given := &History{Leases: map[LeaseID]*Row{}}, map[string][]LeaseID{}
	for i, s := range all {
		a := &Attempt{Client: s.client, Key: "key", Call: s.call, Return: s.back, Outcome: Grant, Token: s.step * repository.TokenStep,
			Believed: s.unlock, End: Lost, EndReturn: Forever}
		if s.freed > 0 {
			a.End, a.EndCall, a.EndReturn = Free, s.unlock, s.freed
		}
		h.Attempts = append(h.Attempts, a)
		id := LeaseID{"key", s.client, int64(i + 1)}
		h.Leases[id] = &Row{Token: a.Token, Call: s.call, Return: s.back}
		if s.freed > 0 {
			h.Leases[id].DeleteCall, h.Leases[id].DeleteReturn = s.unlock, s.freed
		}
		given["key"] = append(given["key"], id)
	}
	return h, given
}

// The checks find what they are for, and nothing in what is right.
func TestChecks(t *testing.T) {
	right := func() []told {
		return []told{{"a", 1, 0, 10, 20, 30}, {"b", 2, 5, 35, 40, 0}, {"a", 3, 50, 90, 95, 99}}
	}
	verdict := func(h *History, given map[string][]LeaseID) string {
		_, order := h.Linearizable(given, time.Minute)
		all := append(h.Overlaps(), h.Forgotten(given)...)
		return strings.Join(append(all, order...), "\n")
	}
	for _, c := range []struct {
		name string
		do   func() (*History, map[string][]LeaseID)
		want string // "" if all is well
	}{
		{"right", func() (*History, map[string][]LeaseID) { return story(right()) }, ""},
		{"two believe", func() (*History, map[string][]LeaseID) {
			all := right()
			all[1].unlock = 92
			return story(all)
		}, "believed in token"},
		{"two hold, and neither looks again", func() (*History, map[string][]LeaseID) {
			return story([]told{{"a", 1, 0, 10, 90, 95}, {"b", 2, 20, 30, 31, 40}})
		}, "not linearizable"},
		{"tokens do not rise", func() (*History, map[string][]LeaseID) {
			all := right()
			all[1].step, all[2].step = 3, 2
			return story(all)
		}, "token 2048 of a after 3072 of b"},
		{"forgotten", func() (*History, map[string][]LeaseID) {
			h, given := story(right())
			given["key"] = given["key"][:2]
			return h, given
		}, "forgotten the grant with token 3072"},
		{"refused while free", func() (*History, map[string][]LeaseID) {
			h, given := story(right())
			h.Refusals = append(h.Refusals, Record{Key: "key", Call: 100, Return: 110, Holder: "a"})
			return h, given
		}, "not linearizable"},
		{"refused, with the wrong holder", func() (*History, map[string][]LeaseID) {
			h, given := story(right())
			h.Refusals = append(h.Refusals, Record{Key: "key", Call: 11, Return: 15, Holder: "b"})
			return h, given
		}, "not linearizable"},
		{"refused for a lease that nobody heard of", func() (*History, map[string][]LeaseID) {
			h, given := story(right())
			h.Refusals = append(h.Refusals, Record{Key: "key", Call: 100, Return: 110, Holder: "d"})
			given["key"] = append(given["key"], LeaseID{"key", "d", 99})
			return h, given
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := verdict(c.do())
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := Stale(map[string][]int64{"x": {1, 2, 2, 3}, "y": {1, 3, 2}}); len(got) != 1 || !strings.Contains(got[0], "y: written with token 2 after 3") {
		t.Errorf("%q", got)
	}
}
