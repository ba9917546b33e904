package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// round is one measurement of a case.
type round struct {
	rate          float64 // per second; 0 if it was not counted
	p50, p99, max time.Duration
	took          []time.Duration // sorted
}

func newRound(took []time.Duration, length time.Duration) round {
	slices.Sort(took)
	one := round{took: took}
	if n := len(took); n > 0 {
		one.p50, one.p99, one.max = took[n/2], took[n*99/100], took[n-1]
		if length > 0 {
			one.rate = float64(n) / length.Seconds()
		}
	}
	return one
}

// series is a case's rounds.
type series struct{ rounds []round }

func (s *series) add(r round) { s.rounds = append(s.rounds, r) }

func (s series) sorted(value func(round) float64) []float64 {
	var all []float64
	for _, r := range s.rounds {
		all = append(all, value(r))
	}
	slices.Sort(all)
	return all
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

func (s series) rate() float64 { return median(s.sorted(func(r round) float64 { return r.rate })) }
func (s series) p50() time.Duration {
	return time.Duration(median(s.sorted(func(r round) float64 { return float64(r.p50) })))
}
func (s series) p99() time.Duration {
	return time.Duration(median(s.sorted(func(r round) float64 { return float64(r.p99) })))
}

// entry is a case's result.
type entry struct {
	Scenario, Vendor, Kind string
	Goroutines             int
	series
}

type report struct {
	entries []entry
	trips   []tripResult
	tries   []tryResult
	crowds  []crowdResult
	sizes   []sizeResult
}

func (r *report) add(e entry) { r.entries = append(r.entries, e) }

// find is the result of one case, nil if it was not measured.
func (r *report) find(scenario, vendor, kind string, goroutines int) *entry {
	for i := range r.entries {
		if e := &r.entries[i]; e.Scenario == scenario && e.Vendor == vendor && e.Kind == kind && e.Goroutines == goroutines {
			return e
		}
	}
	return nil
}

// goal is a line of the table of goals.
type goal struct {
	what, want, got string
	met             bool
}

func (r *report) goals() (all []goal) {
	add := func(what, want string, met bool, format string, args ...any) {
		all = append(all, goal{what, want, fmt.Sprintf(format, args...), met})
	}
	for _, t := range r.trips {
		if t.Kind == durable {
			add("round trips, "+t.Vendor, "2", t.Trips == 2, "%.2f", t.Trips)
		}
	}
	pg := func(kind string, n int) *entry { return r.find("own keys", "postgres", kind, n) }
	for _, kind := range []string{durable, async} {
		if e, p := pg(kind, 1), pg(theProbe, 1); e != nil && p != nil {
			ratio := float64(e.p50()) / float64(p.p50())
			add("PostgreSQL, 1 goroutine, p50 against the probe, "+kind, "<= 1.10", ratio <= 1.10, "%.2f", ratio)
		}
	}
	for _, g := range []struct {
		n    int
		want float64
	}{{16, 1.3}, {64, 4}, {256, 8}} {
		for _, kind := range []string{durable, async} {
			e, p := pg(kind, g.n), pg(theProbe, g.n)
			if e == nil || p == nil {
				continue
			}
			ratio := e.rate() / p.rate()
			add(fmt.Sprintf("PostgreSQL, %d goroutines, cycles/s against the probe, %s", g.n, kind), fmt.Sprintf(">= %.1f", g.want), ratio >= g.want, "%.2f", ratio)
			if g.n > 16 {
				add(fmt.Sprintf("  p99 against the probe's, %s", kind), "< 1", e.p99() < p.p99(), "%.2f", float64(e.p99())/float64(p.p99()))
				if redis := pg("redsync", g.n); redis != nil {
					want := map[int]float64{64: 1, 256: 1.5}[g.n]
					ratio := e.rate() / redis.rate()
					add(fmt.Sprintf("  against redsync without persistence, %s", kind), fmt.Sprintf(">= %.1f", want), ratio >= want, "%.2f", ratio)
				}
			}
		}
	}
	if e, p := pg(woken, 16), pg(async, 16); e != nil && p != nil {
		ratio := e.rate() / p.rate()
		add("PostgreSQL, 16 goroutines, with wake-up against without", ">= 0.95", ratio >= 0.95, "%.2f", ratio)
	}
	for _, t := range r.tries {
		if t.Kind == durable {
			add("one losing try, WAL", "0 B", t.WAL < 1, "%.1f B, %.2f xids, %v", t.WAL, t.XIDs, t.P50.Round(time.Microsecond))
		}
	}
	for _, h := range []struct {
		vendor, kind string
		want         time.Duration
	}{{"postgres", woken, 2 * time.Millisecond}, {"sqlite", woken, time.Millisecond}, {"mariadb", durable, 4 * time.Millisecond}, {"mysql", durable, 4 * time.Millisecond}} {
		if e := r.find("hand-over", h.vendor, h.kind, 0); e != nil {
			add("hand-over to another process, p50, "+h.vendor, "<= "+h.want.String(), e.p50() <= h.want, "%v", e.p50().Round(10*time.Microsecond))
		}
	}
	for _, c := range r.crowds {
		if c.Kind != woken {
			continue
		}
		want := 850.0
		if c.Work == 0 {
			want = 10_000
		}
		add(fmt.Sprintf("4 x 64 on one key, %v of work, hand-overs/s", c.Work), fmt.Sprintf(">= %.0f", want), c.rate() >= want, "%.0f", c.rate())
		if c.Work > 0 {
			add("  least share of a process", ">= 0.10", c.least() >= 0.10, "%.2f", c.least())
			add("  never served, of 256", "0", c.Unserved == 0, "%d", c.Unserved)
		}
	}
	for i, small := range r.sizes {
		if small.Rows != 10 || i+2 >= len(r.sizes) {
			continue
		}
		large := r.sizes[i+2]
		ratio := float64(large.P50) / float64(small.P50)
		add(fmt.Sprintf("%s, %d rows against 10, p50", large.Vendor, large.Rows), "<= 1.2", ratio <= 1.2, "%.2f", ratio)
		for _, s := range large.Stalls {
			add(fmt.Sprintf("  longest cycle beside DeleteExpired, %d expired", s.Expired), "<= 20ms", s.Meanwhile.Longest <= 20*time.Millisecond, "%v (p99 %v; alone %v)", s.Meanwhile.Longest.Round(10*time.Microsecond), s.Meanwhile.P99.Round(10*time.Microsecond), s.Alone.Longest.Round(10*time.Microsecond))
		}
	}
	return all
}

// table writes rows of cells, for people or as Markdown.
func table(markdown bool, head string, rows [][]string) string {
	var out bytes.Buffer
	cells := strings.Split(head, "|")
	if markdown {
		fmt.Fprintf(&out, "| %s |\n|%s\n", strings.Join(cells, " | "), strings.Repeat(" --- |", len(cells)))
		for _, row := range rows {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		}
		return out.String() + "\n"
	}
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{cells}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	return out.String() + "\n"
}

func (r *report) text() string { return r.render(false) }

func (r *report) render(markdown bool) string {
	var out strings.Builder
	title := func(text string) {
		if markdown {
			fmt.Fprintf(&out, "### %s\n\n", text)
		} else {
			fmt.Fprintf(&out, "%s\n", strings.ToUpper(text))
		}
	}
	var rows [][]string
	for _, g := range r.goals() {
		verdict := "met"
		if !g.met {
			verdict = "MISSED"
		}
		rows = append(rows, []string{g.what, g.want, g.got, verdict})
	}
	if len(rows) > 0 {
		title("Goals")
		out.WriteString(table(markdown, "what|goal|measured|", rows))
	}
	rows = nil
	for _, t := range r.trips {
		rows = append(rows, []string{t.Vendor, t.Kind, fmt.Sprintf("%.2f", t.Trips)})
	}
	if len(rows) > 0 {
		title("Round trips of a lock and an unlock, free key")
		out.WriteString(table(markdown, "database|what|round trips", rows))
	}
	rows = nil
	for _, e := range r.entries {
		if e.Scenario != "own keys" {
			continue
		}
		rates := e.sorted(func(r round) float64 { return r.rate })
		ratio := ""
		if p := r.find("own keys", e.Vendor, theProbe, e.Goroutines); p != nil {
			ratio = fmt.Sprintf("%.2f", e.rate()/p.rate())
		}
		rows = append(rows, []string{e.Vendor, fmt.Sprint(e.Goroutines), e.Kind, fmt.Sprintf("%.0f", e.rate()),
			fmt.Sprintf("%.0f to %.0f", rates[0], rates[len(rates)-1]), ratio, e.p50().Round(time.Microsecond).String(), e.p99().Round(time.Microsecond).String()})
	}
	if len(rows) > 0 {
		title("Own keys: goroutines of one process lock and unlock")
		out.WriteString(table(markdown, "database|goroutines|what|cycles/s|rounds|against the probe|p50|p99", rows))
	}
	rows = nil
	for _, t := range r.tries {
		rows = append(rows, []string{t.Kind, fmt.Sprintf("%.0f", t.WAL), fmt.Sprintf("%.2f", t.XIDs), t.P50.Round(time.Microsecond).String()})
	}
	if len(rows) > 0 {
		title("One losing try, PostgreSQL")
		out.WriteString(table(markdown, "what|WAL bytes|transaction ids|p50", rows))
	}
	rows = nil
	for _, e := range r.entries {
		if e.Scenario == "hand-over" {
			one := e.rounds[0]
			rows = append(rows, []string{e.Vendor, e.Kind, ms(one.p50), ms(one.p99), ms(one.max), fmt.Sprint(len(one.took))})
		}
	}
	if len(rows) > 0 {
		title("Hand-over to another process, from the start of its unlock")
		out.WriteString(table(markdown, "database|what|p50|p99|longest|times", rows))
	}
	rows = nil
	for _, c := range r.crowds {
		rows = append(rows, []string{c.Work.String(), c.Kind, fmt.Sprintf("%.0f", c.rate()), fmt.Sprintf("%.2f", c.least()), fmt.Sprint(c.Unserved)})
	}
	if len(rows) > 0 {
		title("4 processes of 64 goroutines want one lock, PostgreSQL")
		out.WriteString(table(markdown, "work|what|hand-overs/s|least share of a process|never served", rows))
	}
	rows = nil
	for _, z := range r.sizes {
		rows = append(rows, []string{z.Vendor, fmt.Sprint(z.Rows), z.P50.Round(time.Microsecond).String()})
	}
	if len(rows) > 0 {
		title("A lock and an unlock in tables of different sizes")
		out.WriteString(table(markdown, "database|rows|p50", rows))
	}
	rows = nil
	for _, z := range r.sizes {
		for _, s := range z.Stalls {
			rows = append(rows, []string{z.Vendor, fmt.Sprint(z.Rows), fmt.Sprint(s.Expired), s.Took.Round(time.Millisecond).String(), ms(s.Meanwhile.Longest), fmt.Sprint(s.Meanwhile.Late), ms(s.Meanwhile.P99), ms(s.Meanwhile.P50), ms(s.Alone.Longest), fmt.Sprint(s.Alone.Late), ms(s.Alone.P50)})
		}
	}
	if len(rows) > 0 {
		title("What a client notices of DeleteExpired")
		out.WriteString(table(markdown, "database|rows|expired|it took|longest cycle meanwhile|over 20 ms|p99|p50|longest alone|over 20 ms|p50", rows))
	}
	return out.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// The marks in docs/performance.md between which the figures stand.
const beginMark, endMark = "<!-- figures: written by make bench -->", "<!-- end of figures -->"

// write puts the figures into dir/performance.md, and the plots beside it.
func (r *report) write(dir string) error {
	file := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no marks for the figures", file)
	}
	text := before + beginMark + "\n\n" + r.render(true) + endMark + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	plots := filepath.Join(dir, "plots")
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	for name, p := range r.plots() {
		if len(p.lines) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(plots, name+".svg"), []byte(p.svg()), 0o644); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(r.goals2(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(plots, "goals.json"), append(data, '\n'), 0o644)
}

// goals2 is the table of goals for programs.
func (r *report) goals2() (all []map[string]any) {
	for _, g := range r.goals() {
		all = append(all, map[string]any{"what": strings.TrimSpace(g.what), "goal": g.want, "measured": g.got, "met": g.met})
	}
	return all
}
