package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

var completionCommand = &command{
	name:    "completion",
	summary: "print a script that completes command lines",
	usage:   "completion bash | zsh | fish",
	text: `
Prints what makes a shell complete the commands and flags of intlock:

  source <(intlock completion bash)                                       # ~/.bashrc
  source <(intlock completion zsh)                                        # ~/.zshrc
  intlock completion fish > ~/.config/fish/completions/intlock.fish`,
	// The list has this command too.
	flags: nil,
}

func init() {
	completionCommand.run = func(_ context.Context, p program, _ *options, args []string) error {
		if len(args) != 1 {
			return usageError("want bash, zsh or fish")
		}
		switch args[0] {
		case "bash":
			completeBash(p.out)
		case "zsh":
			fmt.Fprintln(p.out, "autoload -U +X bashcompinit && bashcompinit")
			completeBash(p.out)
		case "fish":
			completeFish(p.out)
		default:
			return usageError("unknown shell %q; want bash, zsh or fish", args[0])
		}
		return nil
	}
}

// words are what may follow a command: its flags, and what it calls its arguments.
func words(c *command) (all []string) {
	c.flagSet(new(options)).VisitAll(func(f *flag.Flag) { all = append(all, "-"+f.Name) })
	switch c.name {
	case "schema":
		all = append(all, "print", "apply", "check", "drop", "postgres", "mysql", "mariadb", "sqlite")
	case "completion":
		all = append(all, "bash", "zsh", "fish")
	}
	return all
}

func completeBash(to io.Writer) {
	var names []string
	fmt.Fprintln(to, "_intlock() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=\n  case ${COMP_WORDS[1]} in")
	for _, c := range commands() {
		names = append(names, c.name)
		fmt.Fprintf(to, "  %s) words='%s' ;;\n", c.name, strings.Join(words(c), " "))
	}
	fmt.Fprintf(to, "  help) words='%s' ;;\n  esac\n", strings.Join(names, " "))
	fmt.Fprintf(to, "  if ((COMP_CWORD == 1)); then words='%s help version'; fi\n", strings.Join(names, " "))
	fmt.Fprintln(to, "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _intlock intlock")
}

func completeFish(to io.Writer) {
	fmt.Fprintln(to, "complete -c intlock -f")
	for _, c := range commands() {
		fmt.Fprintf(to, "complete -c intlock -n __fish_use_subcommand -a %s -d '%s'\n", c.name, strings.ReplaceAll(c.summary, "'", "\\'"))
		for _, w := range words(c) {
			if name, isFlag := strings.CutPrefix(w, "-"); isFlag {
				fmt.Fprintf(to, "complete -c intlock -n '__fish_seen_subcommand_from %s' -o %s\n", c.name, name)
			} else {
				fmt.Fprintf(to, "complete -c intlock -n '__fish_seen_subcommand_from %s' -a %s\n", c.name, w)
			}
		}
	}
}
