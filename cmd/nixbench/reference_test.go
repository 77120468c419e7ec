package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateDocs = flag.Bool("update", false, "rewrite docs/commands.md")

// commandReference returns docs/commands.md, made of the help texts of all commands.
func commandReference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("<!-- Written by `go test ./cmd/nixbench -run TestCommandReference -update` from the commands' own help. -->\n" +
		"# Commands\n\nAll commands and their flags, as `nixbench help COMMAND` and `nixbench help flags` show them. What deploying\n" +
		"does is in [deploying.md](deploying.md), what a command exits with in [exit-codes.md](exit-codes.md), and what its errors mean in [failures.md](failures.md).\n\n| command | |\n|---|---|\n")
	all := commandsBelow(root)
	for _, c := range all {
		name := c.CommandPath()
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", name, strings.ReplaceAll(name, " ", "-"), escapeCell(c.Short))
	}
	b.WriteString("\n## Flags of all commands\n\n`nixbench help flags` shows them; the help of a command shows only its own flags.\n\n")
	flags(&b, root.PersistentFlags())
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		text := strings.Trim(c.Long, "\n")
		if text == "" {
			text = c.Short + "."
		}
		b.WriteString(formatProse(text) + "\n\n```\n" + c.UseLine() + "\n```\n")
		if c.LocalFlags().HasAvailableFlags() {
			b.WriteString("\n")
			flags(&b, c.LocalNonPersistentFlags())
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", regexp.MustCompile(`(?m)^  `).ReplaceAllString(strings.TrimRight(c.Example, "\n"), ""))
		}
	}
	return b.String()
}

// commandsBelow returns all commands below c in the order of the help, without groups that do
// nothing themselves.
func commandsBelow(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if sub.Runnable() {
			out = append(out, sub)
		}
		out = append(out, commandsBelow(sub)...)
	}
	return out
}

// formatProse converts a help text to Markdown. Indented lines become code.
func formatProse(text string) string {
	var out []string
	inCode := false
	fence := func() {
		if inCode && out[len(out)-1] == "" { // the empty line belongs to the text that follows
			out[len(out)-1] = "```"
			out = append(out, "")
		} else {
			out = append(out, "```")
		}
		inCode = !inCode
	}
	for line := range strings.SplitSeq(text, "\n") {
		if code := strings.HasPrefix(line, "  ") || inCode && line == ""; code != inCode {
			if !inCode && out[len(out)-1] != "" {
				out = append(out, "")
			}
			fence()
		}
		if inCode {
			line = strings.TrimPrefix(line, "  ")
		} else {
			line = strings.NewReplacer("<", "&lt;", "*", "\\*").Replace(line)
		}
		out = append(out, line)
	}
	if inCode {
		fence()
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

func flags(b *strings.Builder, set *pflag.FlagSet) {
	b.WriteString("| flag | |\n|---|---|\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		if value := defaultOf(f); value != "" {
			usage += fmt.Sprintf(" (default: `%s`)", value)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", "\\|"), escapeCell(usage))
	})
}

func escapeCell(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*", "\n", " ").Replace(s)
}

func TestCommandReference(t *testing.T) {
	root := newApp(context.Background(), nil).rootCommand()
	want := commandReference(root)
	file := filepath.Join("..", "..", "docs", "commands.md")
	if *updateDocs {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/commands.md is stale; run make update\n%s", diff)
	}
}

// Every command and flag must have a description.
func TestEverythingIsDocumented(t *testing.T) {
	root := newApp(context.Background(), nil).rootCommand()
	all := commandsBelow(root)
	if len(all) < 20 {
		t.Errorf("only %d commands", len(all))
	}
	for _, c := range append(all, root) {
		if c.Short == "" {
			t.Errorf("%s says nothing", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if len(f.Usage) < 5 {
				t.Errorf("%s --%s says nothing", c.CommandPath(), f.Name)
			}
		})
	}
}
