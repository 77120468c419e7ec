package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
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

// nixbench without arguments prints the names of all commands by group on one screen.
func TestOverview(t *testing.T) {
	text := renderHelp(t)
	if n := strings.Count(text, "\n"); n > 24 {
		t.Errorf("%d lines", n)
	}
	root := newRootCommand(newApp(t.Context(), nil))
	words := strings.Fields(text)
	for _, c := range root.Commands() {
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

// The pages of commands refer to the page of nixbench for the flags of all commands.
func TestManualsShowGlobalFlagsOnce(t *testing.T) {
	dir := t.TempDir()
	renderHelp(t, "man", dir)
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(filepath.Join(dir, page.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytes.Contains(data, []byte(`\-\-show\-trace`)), page.Name() == "nixbench.1"; got != want {
			t.Errorf("%s describes --show-trace: %v, want %v", page.Name(), got, want)
		}
	}
}
