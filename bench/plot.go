package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is a line plot on logarithmic axes, or with a linear y axis.
type plot struct {
	title, x, y string
	linearY     bool
	lines       []line
}

type line struct {
	name   string
	points [][2]float64
}

// plots are those that docs/performance.md shows.
func (r *report) plots() map[string]plot {
	all := map[string]plot{}
	throughput := plot{title: "Own keys on PostgreSQL", x: "goroutines", y: "locks and unlocks per second"}
	for _, kind := range []string{durable, async, theProbe, single, "Spring's algorithm", "pglock 1.16", "redsync", "redsync, fsync always"} {
		l := line{name: kind}
		for _, e := range r.entries {
			if e.Scenario == "own keys" && e.Vendor == "postgres" && e.Kind == kind && e.rate() > 0 {
				l.points = append(l.points, [2]float64{float64(e.Goroutines), e.rate()})
			}
		}
		if len(l.points) > 1 {
			throughput.lines = append(throughput.lines, l)
		}
	}
	all["throughput"] = throughput
	hand := plot{title: "Hand-over to another process", x: "milliseconds from the start of the unlock", y: "share that has the lock", linearY: true}
	for _, e := range r.entries {
		if e.Scenario != "hand-over" || len(e.rounds[0].took) < 5 {
			continue
		}
		l := line{name: e.Vendor + ", " + e.Kind}
		took := e.rounds[0].took
		for i, d := range took {
			l.points = append(l.points, [2]float64{math.Max(float64(d)/1e6, 0.1), float64(i+1) / float64(len(took))})
		}
		hand.lines = append(hand.lines, l)
	}
	all["hand-over"] = hand
	size := plot{title: "A lock and an unlock by size of the table", x: "rows", y: "microseconds, p50"}
	for _, vendor := range []string{"postgres", "mariadb", "mysql", "sqlite"} {
		l := line{name: vendor}
		for _, z := range r.sizes {
			if z.Vendor == vendor {
				l.points = append(l.points, [2]float64{float64(z.Rows), float64(z.P50) / 1e3})
			}
		}
		if len(l.points) > 1 {
			size.lines = append(size.lines, l)
		}
	}
	all["size"] = size
	return all
}

// Colours that are told apart on white and on black.
var colours = []string{"#0b84a5", "#e4572e", "#7a9e3b", "#9b59b6", "#c98b09", "#4a6fd1", "#c2417c", "#5f9ea0", "#8d6e63", "#607d8b", "#2e8b57", "#b5651d"}

func (p plot) svg() string {
	const width, height, left, top, right, bottom = 860.0, 480.0, 80.0, 50.0, 260.0, 60.0
	minX, maxX, minY, maxY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, q := range l.points {
			minX, maxX = math.Min(minX, q[0]), math.Max(maxX, q[0])
			minY, maxY = math.Min(minY, q[1]), math.Max(maxY, q[1])
		}
	}
	decade := func(v float64, up bool) float64 {
		e := math.Log10(v)
		if up {
			return math.Pow(10, math.Ceil(e-1e-9))
		}
		return math.Pow(10, math.Floor(e+1e-9))
	}
	minX, maxX = decade(minX, false), decade(maxX, true)
	if p.linearY {
		minY, maxY = 0, 1
	} else {
		minY, maxY = decade(minY, false), decade(maxY, true)
	}
	at := func(v, low, high float64, log bool) float64 {
		if log {
			return (math.Log10(v) - math.Log10(low)) / math.Max(math.Log10(high)-math.Log10(low), 1e-9)
		}
		return (v - low) / (high - low)
	}
	x := func(v float64) float64 { return left + at(v, minX, maxX, true)*(width-left-right) }
	y := func(v float64) float64 { return height - bottom - at(v, minY, maxY, !p.linearY)*(height-top-bottom) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13" role="img">
<style>text{fill:#222}.grid{stroke:#8884}.axis{stroke:#888}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>
<title>%s</title>
<text x="%.0f" y="28" font-size="17">%s</text>
`, width, height, html.EscapeString(p.title), left, html.EscapeString(p.title))
	for v := minX; v <= maxX*1.001; v *= 10 {
		fmt.Fprintf(&out, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>
`, x(v), top, x(v), height-bottom, x(v), height-bottom+20, short(v))
	}
	step := func(v float64) float64 {
		if p.linearY {
			return v + 0.25
		}
		return v * 10
	}
	for v := minY; v <= maxY*1.001; v = step(v) {
		fmt.Fprintf(&out, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>
`, left, y(v), width-right, y(v), left-8, y(v)+4, short(v))
	}
	fmt.Fprintf(&out, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>
<text x="18" y="%.1f" text-anchor="middle" transform="rotate(-90 18 %.1f)">%s</text>
`, (left+width-right)/2, height-14, html.EscapeString(p.x), (top+height-bottom)/2, (top+height-bottom)/2, html.EscapeString(p.y))
	for i, l := range p.lines {
		colour := colours[i%len(colours)]
		var points []string
		for _, q := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(q[0]), y(q[1])))
		}
		fmt.Fprintf(&out, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>
`, colour, strings.Join(points, " "))
		if len(l.points) < 10 {
			for _, q := range l.points {
				fmt.Fprintf(&out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>
`, x(q[0]), y(q[1]), colour)
			}
		}
		ly := top + 8 + float64(i)*20
		fmt.Fprintf(&out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/><text x="%.1f" y="%.1f" font-size="12">%s</text>
`, width-right+14, ly, width-right+36, ly, colour, width-right+42, ly+4, html.EscapeString(l.name))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// short writes a number as an axis has it.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
