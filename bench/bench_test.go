package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		child(name)
		return
	}
	os.Exit(m.Run())
}

// Every scenario that needs no server runs, and what it gives is written.
func TestScenarios(t *testing.T) {
	for _, vendor := range []string{"POSTGRES", "MYSQL", "MARIADB"} {
		t.Setenv("INTLOCK_TEST_"+vendor+"_DSN", "")
		t.Setenv("BENCH_"+vendor, "")
	}
	house, err := newHouse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer house.close()
	s := settings{rounds: 1, time: 40 * time.Millisecond, rows: 2000}
	r := &report{}
	for _, one := range scenarios {
		if err := one.run(t.Context(), s, r); err != nil {
			t.Fatalf("%s: %v", one.name, err)
		}
	}
	if e := r.find("own keys", "sqlite", durable, 16); e == nil || e.rate() <= 0 || e.p99() < e.p50() {
		t.Errorf("own keys: %+v", e)
	}
	if e := r.find("hand-over", "sqlite", woken, 0); e == nil || e.p50() <= 0 {
		t.Errorf("hand-over: %+v", e)
	}
	if len(r.sizes) != 3 || len(r.sizes[2].Stalls) != 3 || r.sizes[2].Stalls[1].Deleted != 1000 {
		t.Errorf("size: %+v", r.sizes)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(file, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") ||
		strings.Contains(string(text), "\nold\n") || !strings.Contains(string(text), "| sqlite | 16 | intlock |") {
		t.Errorf("%v:\n%s", err, text)
	}
	for _, name := range []string{"hand-over.svg", "size.svg", "goals.json"} {
		if data, err := os.ReadFile(filepath.Join(dir, "plots", name)); err != nil || len(data) < 50 || strings.Contains(string(data), "NaN") {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

func TestStatistics(t *testing.T) {
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(100-i)*time.Millisecond)
	}
	one := newRound(took, 2*time.Second)
	if one.p50 != 51*time.Millisecond || one.p99 != 100*time.Millisecond || one.max != 100*time.Millisecond || one.rate != 50 {
		t.Errorf("%v %v %v %v", one.p50, one.p99, one.max, one.rate)
	}
	var s series
	for _, rate := range []float64{3, 1, 2} {
		s.add(round{rate: rate})
	}
	if s.rate() != 2 {
		t.Errorf("median %v", s.rate())
	}
	c := crowdResult{PerProcess: []int{10, 30, 60}, seconds: 10}
	if c.rate() != 10 || c.least() != 0.1 {
		t.Errorf("crowd %v %v", c.rate(), c.least())
	}
}

func TestPlot(t *testing.T) {
	p := plot{title: "a < b", x: "x", y: "y", lines: []line{{"one", [][2]float64{{1, 10}, {100, 1000}}}}}
	text := p.svg()
	for _, want := range []string{"a &lt; b", "<polyline", "prefers-color-scheme:dark", "100", "1k", "</svg>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
