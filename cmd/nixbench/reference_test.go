package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		"# Commands\n\nAll commands and their flags, as `nixbench help COMMAND` shows them. [failures.md](failures.md) has the exit codes.\n\n")
	all := commandsBelow(root)
	for _, c := range all {
		name := c.CommandPath()
		fmt.Fprintf(&b, "- [`%s`](#%s): %s\n", name, strings.ReplaceAll(name, " ", "-"), escapeMarkdown(c.Short))
	}
	b.WriteString("\n## Flags of all commands\n\n")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { b.WriteString(flagLine(f)) })
	shared := sharedFlags(all)
	b.WriteString("\n## Flags of several commands\n\nThe section of a command names those that it has.\n\n" + strings.Join(slices.Sorted(maps.Keys(shared)), ""))
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		text := strings.Trim(c.Long, "\n")
		if text == "" {
			text = c.Short + "."
		}
		b.WriteString(formatProse(text) + "\n\n```\n" + c.UseLine() + "\n```\n")
		if c.LocalFlags().HasAvailableFlags() {
			flags(&b, c.LocalNonPersistentFlags(), shared)
		}
		if c.Example != "" && strings.TrimSpace(c.Example) != c.UseLine() {
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

// sharedFlags returns the lines of the flags that three or more commands have with the same meaning.
func sharedFlags(all []*cobra.Command) map[string]bool {
	count := map[string]int{}
	for _, c := range all {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { count[flagLine(f)]++ })
	}
	shared := map[string]bool{}
	for line, n := range count {
		if n >= 3 && line != "" {
			shared[line] = true
		}
	}
	return shared
}

// flags writes a list of the flags that are not shared, and the names of those that are.
func flags(b *strings.Builder, set *pflag.FlagSet, shared map[string]bool) {
	var lines, names []string
	set.VisitAll(func(f *pflag.Flag) {
		line := flagLine(f)
		switch {
		case shared[line]:
			names = append(names, "`--"+f.Name+"`")
		case line != "":
			lines = append(lines, line)
		}
	})
	if len(lines) > 0 {
		b.WriteString("\n" + strings.Join(lines, ""))
	}
	if len(names) > 0 {
		fmt.Fprintf(b, "\nAlso [%s](#flags-of-several-commands).\n", strings.Join(names, ", "))
	}
}

// flagLine returns the line of a flag, or an empty string if the help does not show the flag.
func flagLine(f *pflag.Flag) string {
	if f.Hidden || f.Name == "help" {
		return ""
	}
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	if value := f.DefValue; !slices.Contains([]string{"", "0", "0s", "false", "[]"}, value) {
		usage += fmt.Sprintf(" (default: `%s`)", value)
	}
	return fmt.Sprintf("- `%s`: %s\n", name, escapeMarkdown(usage))
}

func escapeMarkdown(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "\n", " ").Replace(s)
}

func TestCommandReference(t *testing.T) {
	root := newRootCommand(newApp(context.Background(), nil))
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
	root := newRootCommand(newApp(context.Background(), nil))
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
