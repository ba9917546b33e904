package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

//go:generate go test -run TestManual -update .

var update = flag.Bool("update", false, "write docs/cli.md")

// docs/cli.md says what the help says.
func TestManual(t *testing.T) {
	const file = "../../docs/cli.md"
	var page bytes.Buffer
	manual(&page)
	text := strings.TrimRight(page.String(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != text {
		t.Errorf("%s is out of date: run go generate ./cmd/intlock", file)
	}
	for _, c := range commands() {
		if c.text == "" || c.summary == "" || c.usage == "" || c.run == nil {
			t.Errorf("%s has no help", c.name)
		}
	}
}
