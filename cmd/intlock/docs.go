package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// docsCommand prints docs/cli.md. It is not in the list.
var docsCommand = &command{name: "docs", usage: "docs", summary: "print the manual as Markdown",
	run: func(_ context.Context, p program, _ *options, _ []string) error { manual(p.out); return nil }}

// manual writes the help texts as a page.
func manual(to io.Writer) {
	block := func(text string) { fmt.Fprintf(to, "```\n%s\n```\n\n", strings.TrimSpace(text)) }
	fmt.Fprintln(to, "# intlock, the command\n\nGenerated from the help texts (`go generate ./cmd/intlock`).\n\n    go install github.com/intlock/intlock/cmd/intlock@latest")
	fmt.Fprintln(to)
	var text strings.Builder
	overview(&text)
	block(text.String())
	fmt.Fprintln(to, "With `-db` everybody on the machine can see the database's URL, password and all, in the list\nof processes; `INTLOCK_DB` keeps it to your own user, and to the commands that `run` starts.")
	fmt.Fprintln(to)
	for _, c := range commands() {
		fmt.Fprintf(to, "## %s\n\n", c.name)
		text.Reset()
		c.help(&text)
		block(text.String())
	}
}
