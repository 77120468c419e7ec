// Package transcript reads what documents show of a shell, so that tests can do the same
// and compare: a document that has gone stale is a test that fails.
package transcript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Step is a command of a document, with what it says it prints; or, without a command, a
// block of Nix that the reader puts into a hive.
type Step struct {
	Where   string // FILE:LINE
	Title   string // of the part of the document
	Command string
	Output  []string
	Nix     string
}

// Read gives the steps of a document: lines set as code that begin with $, and what follows
// each of them.
func Read(t testing.TB, file string) []Step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	var last *Step // whose output goes on
	title, fence := "", false
	for i, line := range strings.Split(string(data), "\n") {
		where := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
		code, isCode := strings.CutPrefix(line, "    ")
		switch {
		case line == "```nix":
			fence = true
			steps = append(steps, Step{Where: where, Title: title})
		case fence && line == "```":
			fence = false
		case fence:
			steps[len(steps)-1].Nix += line + "\n"
		case strings.HasPrefix(line, "#"):
			title = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case isCode && strings.HasPrefix(code, "$ "):
			steps = append(steps, Step{Where: where, Title: title, Command: code[2:]})
			last = &steps[len(steps)-1]
			continue
		case (isCode || line == "") && last != nil:
			last.Output = append(last.Output, code)
			continue
		}
		last = nil
	}
	for i := range steps {
		for n := len(steps[i].Output); n > 0 && steps[i].Output[n-1] == ""; n-- {
			steps[i].Output = steps[i].Output[:n-1]
		}
	}
	return steps
}

// Shell is a bash in which steps are done one after the other.
type Shell struct {
	testing.TB
	Dir string
	Env []string
	// Command makes the process; nil: os/exec.
	Command func(ctx context.Context, name string, args ...string) *exec.Cmd
}

// Do does a step where the one before has ended, in its folder and with its variables. The step must
// succeed, unless the document shows that it does not, and print what it shows: all of it, or
// what a pipe would get.
func (s *Shell) Do(step Step) {
	s.Helper()
	command := s.Command
	if command == nil {
		command = exec.CommandContext
	}
	after := filepath.Join(s.TempDir(), "after")
	script := step.Command + "\nstatus=$?; printf '%s\\n' \"$PWD\" \"${KUBECONFIG-}\" > \"$0\"; exit $status"
	cmd := command(s.Context(), "bash", "-c", script, after)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	var out bytes.Buffer
	var all both
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, &all), &all
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatalf("%s: %v", step.Where, err)
	}
	shown := regexp.MustCompile(`(?m)^\s*error\b`).MatchString(strings.Join(step.Output, "\n"))
	if (err != nil) != shown {
		s.Fatalf("%s: %s: %v\n%s", step.Where, step.Command, err, all.text.String())
	}
	if len(step.Output) > 0 {
		want := plain(strings.Join(step.Output, "\n"))
		if diff := cmp.Diff(want, plain(out.String())); diff != "" && !slices.Equal(want, plain(all.text.String())) {
			s.Errorf("%s: the document (-) differs from what %s prints (+):\n%s\nall of it:\n%s", step.Where, step.Command, diff, all.text.String())
		}
	}
	s.follow(after)
}

// Missing are the lines which a step shows and an output does not have.
func Missing(step Step, output string) []string {
	there := plain(output)
	return slices.DeleteFunc(plain(strings.Join(step.Output, "\n")), func(line string) bool { return slices.Contains(there, line) })
}

// both is what a command writes to either end.
type both struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *both) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// follow makes the next step begin where this one has ended.
func (s *Shell) follow(after string) {
	s.Helper()
	text, err := os.ReadFile(after)
	if err != nil {
		s.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	s.Dir = lines[0]
	s.Env = append(slices.Clone(s.Env), "KUBECONFIG="+lines[1])
}

// plains are what differs each time: not how many nodes there are, nor their addresses.
var plains = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^warning: you don't have Internet access.*\n`), ""},
	{regexp.MustCompile(`(?m)^waiting   .*\n`), ""}, // what takes longer on a busy machine
	{regexp.MustCompile(`(^|\s)(path:)?/\S+`), "$1/…"},
	{regexp.MustCompile(`\b([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?m?s\b`), "a while"},
	{regexp.MustCompile(`\b[0-9]+ paths, [0-9.]+ [KMG]?i?B\b`), "some paths"},
	{regexp.MustCompile(`\b[0-9.]+ [KMG]iB\b`), "some MiB"},
	{regexp.MustCompile(`\b[0-9]+ process(es)?\b`), "processes"}, // as many as this machine has cores
	{regexp.MustCompile(`generation [0-9]+ → [0-9]+`), "the next generation"},
	{regexp.MustCompile(`\(Nix\) [0-9.]+`), "(Nix) …"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
	{regexp.MustCompile(`(?m)^ `), ""},
}

// plain is an output without what differs each time, without the width of columns, and without
// the order of lines, some of which are of things that go on side by side.
func plain(output string) []string {
	for _, p := range plains {
		output = p.what.ReplaceAllString(output, p.with)
	}
	lines := slices.DeleteFunc(strings.Split(output, "\n"), func(l string) bool { return l == "" })
	slices.Sort(lines)
	return lines
}
