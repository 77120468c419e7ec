package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
)

// play sends the events of a run with a build, messages, and a failure.
func play(send func(event.Event)) {
	at := time.Now()
	for _, e := range []event.Event{
		{Kind: event.PhaseStart, Phase: event.Survey, Text: "/h/hive.nix"},
		{Kind: event.PhaseEnd, Phase: event.Survey, Text: "3 nodes in 2 units"},
		{Kind: event.PhaseStart, Phase: event.Evaluate, Total: 2},
		{Kind: event.Message, Phase: event.Evaluate, Level: "warning", Text: "a is old\nand grey"},
		{Kind: event.UnitEnd, Phase: event.Evaluate, Units: []string{"a", "b"}},
		{Kind: event.PhaseEnd, Phase: event.Evaluate, Text: "2 units in 1 process"},
		{Kind: event.PhaseStart, Phase: event.Build, Total: 2},
		{Kind: event.BuildStart, Phase: event.Build, Path: "/nix/store/abc-linux-6.12.drv"},
		{Kind: event.Progress, Phase: event.Build, Done: 2, Total: 14},
		{Kind: event.BuildLog, Phase: event.Build, Path: "/nix/store/abc-linux-6.12.drv", Text: "CC init/main.o"},
		{Kind: event.BuildEnd, Phase: event.Build, Path: "/nix/store/abc-linux-6.12.drv", Failed: true},
		{Kind: event.PhaseEnd, Phase: event.Build, Failed: true},
	} {
		e.Time = at
		at = at.Add(1500 * time.Millisecond)
		send(e)
	}
}

var someProblems = []Problem{
	{Where: "a", Message: "line one\n\n  line two ", Hint: "do this"},
	{Message: "build failed for a"},
}

// A message about a node contains the node's name once.
func TestMessageOfNode(t *testing.T) {
	for text, want := range map[string]string{
		"unable to download it":     "warning: m1: unable to download it",
		"m1: it has failed":         "warning: m1: it has failed",
		"recreate m1 on default":    "warning: recreate m1 on default",
		"m10 has the address of it": "warning: m1: m10 has the address of it",
	} {
		if got := formatMessage(style{}, event.Event{Kind: event.Message, Node: "m1", Level: "warning", Text: text}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	var out, err strings.Builder
	v := New(Options{Out: &out, Err: &err})
	play(v.Event)
	v.Result(nil, func(w io.Writer) { Table(w, []Row{{"NODE", "PATH"}, {"a", ""}, {"worker-1", "/nix/store/x"}}) })
	v.Problems(4, someProblems)
	v.Close()
	want := `hive      /h/hive.nix
survey    3 nodes in 2 units                                        1.5s
warning: a is old
  and grey
evaluate  2 units in 1 process                                      4.5s
build     failed                                                    7.5s
error: a: line one

    line two
hint: do this
error: build failed for a
`
	if diff := cmp.Diff(want, err.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("NODE      PATH\na\nworker-1  /nix/store/x\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestVerboseShowsBuildLogs(t *testing.T) {
	var err strings.Builder
	v := New(Options{Out: io.Discard, Err: &err, Verbose: true})
	play(v.Event)
	for _, want := range []string{"building  linux-6.12\n", "linux-6.12> CC init/main.o\n"} {
		if !strings.Contains(err.String(), want) {
			t.Errorf("no %q in\n%s", want, err.String())
		}
	}
}

// With --json every line is an object, nothing goes to stderr, and the last line is the result or
// the error.
func TestJSON(t *testing.T) {
	var out, err strings.Builder
	v := New(Options{Out: &out, Err: &err, JSON: true})
	play(v.Event)
	v.Result(map[string]string{"a": "<&>"}, nil)
	v.Problems(4, someProblems)
	v.Close()
	if err.String() != "" {
		t.Errorf("stderr: %s", err.String())
	}
	var kinds []string
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		var o struct{ Event, Time string }
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Time == "" {
			t.Fatalf("%q: %v", line, err)
		}
		kinds = append(kinds, o.Event)
	}
	want := []string{
		"phase-start", "phase-end", "phase-start", "message", "unit-end", "phase-end",
		"phase-start", "build-start", "progress", "build-log", "build-end", "phase-end", "result", "error",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(out.String(), `"result":{"a":"<&>"}`) {
		t.Error("results are escaped for HTML")
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"code":4,"problems":[{"where":"a","message":"line one\n\n  line two ","hint":"do this"}`) {
		t.Error(last)
	}
}

// screen returns what a terminal with one live line shows after all that was written.
func screen(written string) (scrolled []string, live string) {
	for _, line := range strings.Split(written, "\n") {
		if i := strings.LastIndex(line, "\r\x1b[J"); i >= 0 {
			line = line[i+len("\r\x1b[J"):]
		}
		scrolled = append(scrolled, line)
	}
	return scrolled[:len(scrolled)-1], scrolled[len(scrolled)-1]
}

func TestTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var out, err strings.Builder
	v := newView(Options{Out: &out, Err: &err}, true)
	v.live.size = func() (int, int) { return 60, 10 }
	played := 0
	play(func(e event.Event) {
		v.Event(e)
		if played++; e.Kind == event.Progress {
			for i := range 9 {
				v.Event(event.Event{Kind: event.BuildStart, Phase: event.Build, Path: fmt.Sprintf("/nix/store/abc-package-%d.drv", i)})
			}
			v.live.draw(&v.progress)
			_, live := screen(err.String())
			if n := len([]rune(live)); n > 59 || !strings.Contains(live, "build     2 of 14 · linux-6.12 · package-0") || !strings.Contains(live, "…") {
				t.Errorf("%d columns: %q", n, live)
			}
		}
	})
	v.Problems(4, someProblems)
	v.Close()
	scrolled, live := screen(err.String())
	if live != "" {
		t.Errorf("%q is left on the screen", live)
	}
	want := []string{
		"hive      /h/hive.nix",
		"✓ survey    3 nodes in 2 units                    1.5s",
		"warning: a is old",
		"  and grey",
		"✓ evaluate  2 units in 1 process                  4.5s",
		"✗ build     failed                                7.5s",
		"error: a: line one",
		"",
		"    line two",
		"hint: do this",
		"error: build failed for a",
	}
	if diff := cmp.Diff(want, scrolled); diff != "" {
		t.Error(diff)
	}
}

// All nodes may wait for an image that is being uploaded, while the phase that began last has no
// progress.
func TestTerminalShowsAllPhases(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var out, err strings.Builder
	v := newView(Options{Out: &out, Err: &err}, true)
	defer v.Close()
	for _, phase := range []event.Phase{event.Image, event.Provision, event.Deploy} {
		v.Event(event.Event{Kind: event.PhaseStart, Phase: phase, Total: 3})
	}
	v.live.draw(&v.progress)
	if _, live := screen(err.String()); !strings.Contains(live, "deploy    0 of 3 · image · provision") {
		t.Errorf("%q", live)
	}
	v.Event(event.Event{Kind: event.PhaseEnd, Phase: event.Image})
	if _, live := screen(err.String()); strings.Contains(live, "image") {
		t.Errorf("%q", live)
	}
}

// During the evaluation, the progress of the evaluation is shown, and no node whose copy has ended.
func TestTerminalShowsEarlyBuildsAndCopies(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var out, err strings.Builder
	v := newView(Options{Out: &out, Err: &err}, true)
	defer v.Close()
	for _, step := range []struct {
		event event.Event
		live  string // the live lines contain this text
	}{
		{event.Event{Kind: event.PhaseStart, Phase: event.Evaluate, Total: 9}, "evaluate  0 of 9 "},
		{event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: []string{"a", "b"}}, "evaluate  2 of 9 "},
		{event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: 9}, "evaluate  2 of 9 · build "},
		{event.Event{Kind: event.Progress, Phase: event.Build, Done: 1, Total: 30}, "evaluate  2 of 9 · build "},
		{event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: "web-1"}, "web-1 copy"},
		{event.Event{Kind: event.PhaseEnd, Phase: event.Evaluate}, "build     1 of 30 "},
		{event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: "web-1", Done: 1 << 20, Total: 2 << 20}, "web-1 copy      1.0 MiB of 2.0 MiB"},
		{event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: "web-1"}, "build     1 of 30 "},
		{event.Event{Kind: event.Progress, Phase: event.Build, Done: 2, Total: 30}, "build     2 of 30 "},
		{event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: "web-1", Text: "switch"}, "web-1 activate  switch"},
	} {
		step.event.Time = time.Now()
		v.Event(step.event)
		err.Reset()
		v.live.draw(&v.progress)
		if got := err.String(); !strings.Contains(got, step.live) || strings.Contains(got, "web-1") != strings.Contains(step.live, "web-1") && step.event.Kind != event.PhaseEnd {
			t.Errorf("%s %s: %q", step.event.Phase, step.event.Kind, got)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWriteErrorIsReturned(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var err strings.Builder
		v := New(Options{Out: full{}, Err: &err, JSON: asJSON})
		v.Result("x", func(w io.Writer) { Table(w, []Row{{"x"}}) })
		if v.Close() == nil {
			t.Errorf("json %t: it is not reported", asJSON)
		}
		if !asJSON && !strings.Contains(err.String(), "no space left") {
			t.Error(err.String())
		}
	}
}

func TestWords(t *testing.T) {
	for path, want := range map[string]string{
		"/nix/store/abc-linux-6.12.drv": "linux-6.12", "/nix/store/abc-x": "x", "odd": "odd", "": "",
	} {
		if got := trimStorePath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: " 0.0s", 1540 * time.Millisecond: " 1.5s", 59 * time.Second: "59.0s", 61 * time.Second: "1m01s", 2 * time.Hour: "2h00m",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// The result of a node with a long name fits in one line of the terminal.
func TestResultsFitTheTerminal(t *testing.T) {
	now := time.Now()
	for _, name := range []string{"a", "a-node-with-a-long-name.rack7.example.org"} {
		for _, text := range []string{"generation 1 → 2", strings.Repeat("long ", 30)} {
			e := event.Event{Kind: event.NodeResult, Node: name, Text: text, Time: now}
			if line := formatResult(style{marks: true}, e, now.Add(-time.Second), 80); len([]rune(line)) > 79 {
				t.Errorf("%d columns: %s", len([]rune(line)), line)
			}
			if line := formatResult(style{}, e, now, 80); !strings.Contains(line, name) || !strings.Contains(line, strings.TrimSpace(text)) {
				t.Errorf("a log lacks something: %s", line)
			}
		}
	}
}

// The output of a program that is shown unchanged reaches stdout and stderr byte for byte. A terminal draws no
// live lines after it, since they would overwrite an incomplete line.
func TestRaw(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out, errs bytes.Buffer
		v := newView(Options{Out: &out, Err: &errs}, terminal)
		go v.updateUntilClosed()
		v.Event(event.Event{Kind: event.PhaseStart, Phase: event.Connect, Time: time.Now()})
		stdout, stderr := v.Raw()
		stdout.Write([]byte("\x00a"))
		errs.Reset()
		stderr.Write([]byte("prompt "))
		v.Event(event.Event{Kind: event.NodeStart, Phase: event.Connect, Node: "a", Time: time.Now()})
		time.Sleep(3 * drawInterval)
		v.mu.Lock()
		if out.String() != "\x00a" || errs.String() != "prompt " {
			t.Errorf("terminal %v: %q, %q", terminal, &out, &errs)
		}
		v.mu.Unlock()
		v.Close()
	}
}

// The live lines of nodes are in natural order, whichever begins first.
func TestLiveOrder(t *testing.T) {
	var p progress
	for _, name := range []string{"w-10", "w-2", "w-1"} {
		p.apply(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: name, Time: time.Now()})
	}
	var got []string
	for _, a := range p.perNode() {
		got = append(got, a.Node)
	}
	if want := []string{"w-1", "w-2", "w-10"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestColor(t *testing.T) {
	for color, want := range map[string]bool{"": false, "auto": false, "always": true, "never": false} {
		var errs bytes.Buffer
		v := New(Options{Out: &errs, Err: &errs, Color: color})
		v.Problems(1, []Problem{{Message: "no"}})
		v.Output("a", "line")
		v.Close()
		if got := strings.Count(errs.String(), "\x1b["); (got > 0) != want {
			t.Errorf("%q: %q", color, &errs)
		}
	}
	t.Setenv("NO_COLOR", "1")
	for color, want := range map[string]bool{"auto": false, "always": true, "never": false} {
		if got := terminalStyle(color).colour; got != want {
			t.Errorf("with NO_COLOR, %q on a terminal: %v", color, got)
		}
	}
}

// On a terminal, messages and errors break between words.
func TestTerminalBreaksBetweenWords(t *testing.T) {
	var err strings.Builder
	v := newView(Options{Out: io.Discard, Err: &err, Color: "always"}, true)
	v.Event(event.Event{Kind: event.Message, Level: "note", Text: "nixbench exec --on head-1 -- sinfo shows the nodes of the cluster, and nixbench check verifies it"})
	v.Problems(1, []Problem{{Where: "web-1", Message: "the switch failed:\n  " + strings.Repeat("word ", 20)}})
	v.Close()
	for line := range strings.Lines(err.String()) {
		if len(line) > 81 {
			t.Errorf("%q is longer than the terminal", line)
		}
	}
	if !strings.Contains(err.String(), "cluster, and\n  nixbench check") || !strings.Contains(err.String(), "word\n      word") {
		t.Errorf("%q", err.String())
	}
}

// A check shows what it waits for.
func TestTerminalShowsCheck(t *testing.T) {
	var err strings.Builder
	v := newView(Options{Out: io.Discard, Err: &err}, true)
	defer v.Close()
	now := time.Now()
	v.Event(event.Event{Time: now, Kind: event.PhaseStart, Phase: event.Check, Total: 4})
	v.Event(event.Event{Time: now, Kind: event.Progress, Phase: event.Check, Done: 1, Total: 4, Text: "slurmctld answers: connection refused"})
	v.live.draw(&v.progress)
	if got := err.String(); !strings.Contains(got, "1 of 4 · slurmctld answers: connection refused") {
		t.Error(got)
	}
}
