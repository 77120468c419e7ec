// Package transcript reads the shell commands in documents and their output, so that tests can
// run the commands and compare the output: the test fails if a document is stale.
package transcript

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Step is a command in a document with its output. A step without a command is a block of Nix for
// the hive.
type Step struct {
	Where   string // FILE:LINE
	Title   string // of the section of the document
	Command string
	Output  []string
	Nix     string
}

// Read returns the steps of a document: indented lines that begin with $ are commands, and the
// indented lines after them are their output.
func Read(t testing.TB, file string) []Step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	var last *Step // whose output may continue in the next line
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

// Shell runs steps one after the other in bash.
type Shell struct {
	testing.TB
	Dir string
	Env []string
	// Command returns the command for a step; nil: exec.CommandContext.
	Command func(ctx context.Context, name string, args ...string) *exec.Cmd
	// Printed is what the last step printed to stdout, and then what it printed to stderr.
	Printed string
}

// questionRE matches a question of the program in a document, and the reader's answer.
var questionRE = regexp.MustCompile(`(?m)^(.*\[y/N\]) (\w+)$`)

// Do runs a step in the folder in which the previous step ended, with its KUBECONFIG and PATH. The step must
// succeed, unless the document shows an error. If the document shows output, it must be the step's
// stdout, or its stdout and stderr. If the document shows an answer to a question, the step runs on a terminal on which the
// answer is typed, and must ask the question.
func (s *Shell) Do(step Step) {
	s.Helper()
	command := s.Command
	if command == nil {
		command = exec.CommandContext
	}
	after := filepath.Join(s.TempDir(), "after")
	script := step.Command + "\nstatus=$?; printf '%s\\n' \"$PWD\" \"${KUBECONFIG-}\" \"$PATH\" > \"$AFTER\"; exit $status"
	argv := []string{"bash", "-c", script}
	question := questionRE.FindStringSubmatch(strings.Join(step.Output, "\n"))
	if question != nil {
		argv = []string{"script", "--quiet", "--return", "--command", script, "/dev/null"}
	}
	cmd := command(s.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.Dir, append(slices.Clone(s.Env), "AFTER="+after, "SHELL=/bin/bash")
	if question != nil {
		cmd.Stdin = strings.NewReader(question[2] + "\n")
	}
	var out, diag strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	s.Printed = out.String() + diag.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatalf("%s: %v", step.Where, err)
	}
	shown := regexp.MustCompile(`(?m)^\s*error\b`).MatchString(strings.Join(step.Output, "\n"))
	if (err != nil) != shown {
		s.Fatalf("%s: %s: %v\n%s", step.Where, step.Command, err, s.Printed)
	}
	switch {
	case question != nil:
		if !strings.Contains(out.String(), question[1]) {
			s.Errorf("%s: %s does not ask %q:\n%s", step.Where, step.Command, question[1], out.String())
		}
	case len(step.Output) > 0:
		want := plain(strings.Join(step.Output, "\n"))
		if diff := cmp.Diff(want, plain(out.String())); diff != "" && !slices.Equal(want, plain(s.Printed)) {
			s.Errorf("%s: the document (-) differs from what %s prints (+):\n%s\nall of it:\n%s", step.Where, step.Command, diff, s.Printed)
		}
	}
	s.follow(after)
}

// Missing returns the lines of the step's output in the document that are not in this output.
func Missing(step Step, output string) []string {
	there := plain(output)
	return slices.DeleteFunc(plain(strings.Join(step.Output, "\n")), func(line string) bool { return slices.Contains(there, line) })
}

// follow sets the folder, KUBECONFIG and PATH of the next step to those with which this one ended.
func (s *Shell) follow(after string) {
	s.Helper()
	text, err := os.ReadFile(after)
	if err != nil {
		s.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	s.Dir = lines[0]
	s.Env = append(slices.Clone(s.Env), "KUBECONFIG="+lines[1], "PATH="+lines[2])
}

// replacements remove what differs between runs. Numbers of nodes and addresses must not differ.
var replacements = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^waiting   .*\n`), ""}, // depends on how busy the machine is
	{regexp.MustCompile(`(^|\s)(path:)?/\S+`), "$1/…"},
	{regexp.MustCompile(`\b([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?m?s\b`), "a while"},
	{regexp.MustCompile(`\b[0-9]+ paths, [0-9.]+ [KMG]?i?B\b`), "some paths"},
	{regexp.MustCompile(`\b[0-9.]+ [KMG]iB\b`), "some MiB"},
	{regexp.MustCompile(`\b[0-9]+ process(es)?\b`), "processes"}, // as many as this machine has cores
	{regexp.MustCompile(`\b[0-9]+ attempts?\b`), "attempts"},
	{regexp.MustCompile(`generation [0-9]+ → [0-9]+`), "the next generation"},
	{regexp.MustCompile(`\(Nix\) [0-9.]+`), "(Nix) …"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
	{regexp.MustCompile(`(?m)^ `), ""},
}

// plain returns the lines of an output without what differs between runs and without the width of
// columns. The lines are sorted, because the order of parallel work differs, too.
func plain(output string) []string {
	for _, p := range replacements {
		output = p.what.ReplaceAllString(output, p.with)
	}
	lines := slices.DeleteFunc(strings.Split(output, "\n"), func(l string) bool { return l == "" })
	slices.Sort(lines)
	return lines
}
