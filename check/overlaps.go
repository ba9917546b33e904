package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Overlaps finds two who believed in a lock at the same time, and tokens that did not
// rise from one grant to the next, in n log n.
func (h *History) Overlaps() (faults []string) {
	for key, attempts := range h.byKey() {
		granted := grants(attempts)
		slices.SortFunc(granted, func(a, b *Attempt) int { return cmp.Compare(a.Return, b.Return) })
		var latest *Attempt // who believed longest
		for _, a := range granted {
			if latest != nil {
				if a.Return < latest.Believed {
					faults = append(faults, fmt.Sprintf("%s: %s believed in token %d for %v after %s was granted %d",
						key, latest.Client, latest.Token, time.Duration(latest.Believed-a.Return), a.Client, a.Token))
				}
				if a.Token <= latest.Token {
					faults = append(faults, fmt.Sprintf("%s: token %d of %s after %d of %s", key, a.Token, a.Client, latest.Token, latest.Client))
				}
			}
			if latest == nil || a.Believed > latest.Believed {
				latest = a
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// Stale finds writes of an earlier holder after one of a later holder. writes are the
// tokens with which each resource was written, in the order of the writes.
func Stale(writes map[string][]int64) (faults []string) {
	for resource, tokens := range writes {
		for i := 1; i < len(tokens); i++ {
			if tokens[i] < tokens[i-1] {
				faults = append(faults, fmt.Sprintf("%s: written with token %d after %d", resource, tokens[i], tokens[i-1]))
			}
		}
	}
	slices.Sort(faults)
	return faults
}
