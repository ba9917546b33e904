package main

import (
	"fmt"
	"slices"
	"strings"
)

// audit is what the outbox says in the end, against what was fed. It trusts no
// worker's report.
type audit struct {
	Released        int `json:"groups_released"` // once or more
	Missing         int `json:"groups_missing"`
	Doubled         int `json:"groups_doubled"`
	Wrong           int `json:"groups_wrong"`
	MessagesLost    int `json:"messages_lost"`
	MessagesDoubled int `json:"messages_doubled"`

	findings []string // for people, a line per damaged group
}

func newAudit(f *feed, outputs []output) audit {
	var a audit
	byGroup := make(map[string][]output)
	for _, o := range outputs {
		byGroup[o.Group] = append(byGroup[o.Group], o)
	}
	var missing []string
	for _, group := range f.groups {
		size, found := len(f.amounts[group]), byGroup[group]
		want := result(f.amounts[group])
		if len(found) == 0 {
			a.Missing++
			a.MessagesLost += size
			missing = append(missing, group+" was never released")
			continue
		}
		a.Released++
		if len(found) > 1 {
			a.Doubled++
			a.MessagesDoubled += size * (len(found) - 1)
			a.findings = append(a.findings, fmt.Sprintf("%s was released %d times: by %s", group, len(found), workersOf(found)))
		}
		// One line of the result is every message, once and in sequence.
		if i := slices.IndexFunc(found, func(o output) bool { return o.Result != want }); i >= 0 {
			a.Wrong++
			a.findings = append(a.findings, fmt.Sprintf("%s is %s, should be %s", group, found[i].Result, want))
		}
	}
	a.findings = append(a.findings, missing...) // last: they would crowd out the rest
	return a
}

func workersOf(outputs []output) string {
	var names []string
	for _, o := range outputs {
		names = append(names, fmt.Sprintf("worker %d", o.Worker))
	}
	return strings.Join(names, " and ")
}
