package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// renderHelp returns what `nixbench ARGS…` prints.
func renderHelp(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand(newApp(t.Context(), nil))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append([]string{}, args...)) // with nil, cobra uses the arguments of the test
	if err := root.Execute(); err != nil {
		t.Fatalf("nixbench %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// No line of a help text may be longer than the usual terminal.
func TestHelpFitsTerminal(t *testing.T) {
	root := newRootCommand(newApp(t.Context(), nil))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	calls := [][]string{{}, {"help"}}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			calls = append(calls, append([]string{"help"}, strings.Fields(c.CommandPath())[1:]...))
			walk(c)
		}
	}
	walk(root)
	if len(calls) < 40 {
		t.Errorf("only %d help texts", len(calls))
	}
	for _, args := range calls {
		text := renderHelp(t, args...)
		if text == "" {
			t.Errorf("nixbench %s prints nothing", strings.Join(args, " "))
		}
		for line := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("nixbench %s: a line has %d characters: %s", strings.Join(args, " "), n, line)
			}
		}
	}
}

// The help lists every command in a group.
func TestHelpListsAllCommands(t *testing.T) {
	words := strings.Fields(renderHelp(t))
	for _, c := range newRootCommand(newApp(t.Context(), nil)).Commands() {
		if c.IsAvailableCommand() && (!slices.Contains(words, c.Name()) || c.GroupID == "") {
			t.Errorf("%s is not listed, or is in no group", c.Name())
		}
	}
}

// Only the topic flags describes the flags of all commands.
func TestGlobalFlagsAreShownOnce(t *testing.T) {
	const description = "show the full stack trace of Nix errors"
	if text := renderHelp(t, "help", "flags"); strings.Count(text, description) != 1 {
		t.Errorf("help flags:\n%s", text)
	}
	for _, args := range [][]string{{}, {"help"}, {"help", "apply"}, {"bench", "run", "--help"}} {
		text := renderHelp(t, args...)
		if strings.Contains(text, description) || !strings.Contains(text, "nixbench help flags") {
			t.Errorf("nixbench %s:\n%s", strings.Join(args, " "), text)
		}
	}
}
