package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
)

// timestamper prefixes each line with the second in which it was written.
type timestamper struct {
	begin time.Time
	strings.Builder
}

func (c *timestamper) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		fmt.Fprintf(&c.Builder, "%.0f %s", time.Since(c.begin).Seconds(), line)
	}
	return len(p), nil
}

// plainOutput returns the plain output for the events that play sends, with a fake clock.
func plainOutput(t *testing.T, verbose bool, play func(event.Sink)) string {
	t.Helper()
	var out string
	synctest.Test(t, func(*testing.T) {
		c := &timestamper{begin: time.Now()}
		v := New(Options{Out: io.Discard, Err: c, Verbose: verbose})
		play(v.Event)
		v.Close()
		out = c.String()
	})
	return out
}

// A wait is reported within five seconds, and then at growing intervals.
func TestPlainReportsWaits(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		w := send.Wait(event.Event{Node: "web-1", Phase: event.Keys, Text: "a lock", Until: time.Now().Add(2 * time.Minute)})
		time.Sleep(3*time.Minute + time.Second)
		w.End()
		time.Sleep(time.Hour)
	})
	want := `4 waiting   web-1: keys: a lock (4s so far, at most 1m56s more)
8 waiting   web-1: keys: a lock (8s so far, at most 1m52s more)
16 waiting   web-1: keys: a lock (16s so far, at most 1m44s more)
32 waiting   web-1: keys: a lock (32s so far, at most 1m28s more)
64 waiting   web-1: keys: a lock (1m4s so far, at most 56s more)
124 waiting   web-1: keys: a lock (2m4s so far)
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An activity that ends within four seconds is not reported.
func TestPlainOmitsShortWaits(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		send.Send(event.Event{Kind: event.NodeStart, Phase: event.Keys, Node: "a"})
		w := send.Wait(event.Event{Node: "a", Text: "a lock"})
		time.Sleep(3900 * time.Millisecond)
		w.End()
		send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Keys, Node: "a"})
		time.Sleep(time.Minute)
	})
	if got != "" {
		t.Error(got)
	}
}

// A changed reason is reported at the same time as a new wait would be.
func TestPlainReportsChangedReason(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		w := send.Wait(event.Event{Node: "a", Text: "a lock"})
		time.Sleep(70 * time.Second)
		w.Change("a key", time.Time{})
		time.Sleep(15 * time.Second)
		w.End()
	})
	want := []string{"4 waiting   a: a lock (4s so far)", "8 waiting   a: a lock (8s so far)", "16 waiting   a: a lock (16s so far)", "32 waiting   a: a lock (32s so far)",
		"64 waiting   a: a lock (1m4s so far)", "74 waiting   a: a key (1m14s so far)", "78 waiting   a: a key (1m18s so far)"}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(got), "\n")); diff != "" {
		t.Error(diff)
	}
}

// A reason that changes continuously is reported every four seconds, not more often.
func TestPlainLimitsAlternatingReasons(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		w := send.Wait(event.Event{Node: "a", Text: "0"})
		for i := range 60 {
			time.Sleep(time.Second)
			w.Change(fmt.Sprint(i), time.Time{})
		}
		w.End()
	})
	if n := strings.Count(got, "\n"); n < 3 || n > 16 {
		t.Errorf("%d lines in a minute:\n%s", n, got)
	}
}

// The reason for which a node waits in a phase may change, too.
func TestPlainReportsChangedReasonOfPhase(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: "a"})
		for _, text := range []string{"pod one", "pod two"} {
			send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: "a", Text: text})
			time.Sleep(20 * time.Second)
		}
	})
	want := []string{"4 waiting   a: drain: pod one (4s so far)", "8 waiting   a: drain: pod one (8s so far)", "16 waiting   a: drain: pod one (16s so far)",
		"24 waiting   a: drain: pod two (24s so far)", "28 waiting   a: drain: pod two (28s so far)", "36 waiting   a: drain: pod two (36s so far)"}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(got), "\n")); diff != "" {
		t.Error(diff)
	}
}

// Phases of nodes and of the run are reported, too, unless another activity is more informative.
func TestPlainReportsPhases(t *testing.T) {
	for name, test := range map[string]struct {
		play func(event.Sink)
		want string
	}{
		"build": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: 2})
			send.Send(event.Event{Kind: event.BuildStart, Phase: event.Build, Path: "/nix/store/abc-linux-6.12.drv"})
			send.Send(event.Event{Kind: event.Progress, Phase: event.Build, Done: 2, Total: 14})
		}, "waiting   build: 2 of 14, linux-6.12 (4s so far)"},
		"build during the evaluation": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Evaluate, Total: 2})
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: 2})
		}, "waiting   evaluate (4s so far)"},
		"check": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Check, Total: 3})
			send.Send(event.Event{Kind: event.Progress, Phase: event.Check, Total: 3, Text: "all nodes are Ready: w-1 is not"})
		}, "waiting   check: all nodes are Ready: w-1 is not (4s so far)"},
		"copy": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: "a"})
			send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: "a", Done: 1 << 20, Total: 3 << 20, Text: "1 of 3 paths"})
		}, "waiting   a: copy: 1.0 MiB of 3.0 MiB, 256.0 KiB/s, 8s left, 1 of 3 paths (4s so far)"},
		"switch": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: "a", Text: "switch to /nix/store/2c8r2v31xqgcbmc1w7cya2fmp0m6pmfh-nixos"})
		}, "waiting   a: activate: switch to nixos (4s so far)"},
		"a wait in a phase": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: "a", Text: "switch to x"})
			send.Wait(event.Event{Node: "a", Phase: event.Activate, Text: "unreachable"})
		}, "waiting   a: activate: unreachable (4s so far)"},
		"a command in a phase": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: "a"})
			send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: "a", Text: "pod web-0"})
			send.Wait(event.Event{Node: "a", Text: "a command: kubectl drain"})
		}, "waiting   a: drain: pod web-0 (4s so far)"},
		"a command": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
			send.Wait(event.Event{Node: "a", Text: "a command: kubectl get"})
		}, "waiting   a: a command: kubectl get (4s so far)"},
		"nothing else": {func(send event.Sink) {
			send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
		}, "waiting   deploy (4s so far)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := plainOutput(t, false, func(send event.Sink) {
				test.play(send)
				time.Sleep(6 * time.Second)
			})
			if got != "4 "+test.want+"\n" {
				t.Errorf("got  %swant %s", got, test.want)
			}
		})
	}
}

// Between two steps of a node, the phase of the run is not reported at once.
func TestPlainOmitsRunPhaseBetweenSteps(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
		for _, phase := range []event.Phase{event.Copy, event.Keys, event.Activate} {
			send.Send(event.Event{Kind: event.NodeStart, Phase: phase, Node: "a"})
			time.Sleep(3 * time.Second)
			send.Send(event.Event{Kind: event.NodeEnd, Phase: phase, Node: "a"})
			time.Sleep(time.Second)
		}
	})
	if got != "" {
		t.Error(got)
	}
}

// With --verbose the log of a build counts as output of the build. Without it the build has no
// output.
func TestVerboseLogsCountAsOutput(t *testing.T) {
	for verbose, want := range map[bool]int{true: 0, false: 2} {
		got := plainOutput(t, verbose, func(send event.Sink) {
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: "a"})
			for range 12 {
				time.Sleep(time.Second)
				send.Send(event.Event{Kind: event.NodeLog, Phase: event.Activate, Node: "a", Text: "a line"})
			}
		})
		if n := strings.Count(got, "waiting"); n != want {
			t.Errorf("verbose %t: %d waits, want %d\n%s", verbose, n, want, got)
		}
	}
}

// A thousand waiting nodes cause only a few lines at a time.
func TestPlainLimitsWaitsOfManyNodes(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		for i := range 1000 {
			send.Send(event.Event{Kind: event.NodeStart, Phase: event.Connect, Node: fmt.Sprintf("n%d", i)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
	})
	if n := strings.Count(got, "\n"); n > 2*maxReports || !strings.Contains(got, "n0: connect") || !strings.Contains(got, "… and ") {
		t.Errorf("%d lines\n%s", n, got)
	}
}

// After the result no wait is reported.
func TestNoReportsAfterResult(t *testing.T) {
	got := plainOutput(t, false, func(send event.Sink) {
		w := send.Wait(event.Event{Node: "a", Text: "a lock"})
		time.Sleep(3 * time.Second)
		w.End()
		send.Send(event.Event{Kind: event.NodeStart, Phase: event.Keys, Node: "a"})
		send.Send(event.Event{Kind: event.NodeResult, Phase: event.Deploy, Node: "a", Text: "failed"})
		time.Sleep(time.Minute)
	})
	if strings.Contains(got, "waiting") {
		t.Error(got)
	}
}

// With --json a wait is an event, which is repeated at the same intervals.
func TestJSONReportsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		begin := time.Now()
		v := New(Options{Out: &out, Err: io.Discard, JSON: true})
		w := event.Sink(v.Event).Wait(event.Event{Node: "a", Phase: event.Keys, Text: "a lock", Until: begin.Add(time.Minute)})
		time.Sleep(20 * time.Second)
		w.End()
		v.Close()
		var got []string
		for line := range strings.Lines(out.String()) {
			var e event.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if !e.Since.Equal(begin) || e.Kind == event.Waiting && !e.Until.Equal(begin.Add(time.Minute)) {
				t.Errorf("%s", line)
			}
			got = append(got, fmt.Sprintf("%v %s %s %s %s", e.Time.Sub(begin), e.Kind, e.Node, e.Phase, e.Text))
		}
		want := []string{"2s wait a keys a lock", "4s wait a keys a lock", "8s wait a keys a lock", "16s wait a keys a lock", "20s wait-end a keys a lock"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// On a terminal the reason is in the line of the node, with the remaining time.
func TestTerminalShowsWaits(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var err strings.Builder
	v := newView(Options{Out: io.Discard, Err: &err}, true)
	defer v.Close()
	frame := func() string {
		err.Reset()
		v.live.draw(&v.progress)
		return err.String()
	}
	now := time.Now()
	v.Event(event.Event{Time: now, Kind: event.PhaseStart, Phase: event.Deploy, Total: 1})
	v.Event(event.Event{Time: now, Kind: event.NodeStart, Phase: event.Activate, Node: "web-1", Text: "switch to x"})
	lost := event.Event{Time: now, Kind: event.Waiting, Phase: event.Activate, Node: "web-1", Text: "unreachable; it rolls back", Since: now.Add(-12 * time.Second), Until: now.Add(48*time.Second + 400*time.Millisecond)}
	v.Event(lost)
	if got := frame(); !strings.Contains(got, "  web-1 activate  gives up in 48s: unreachable; it rolls back ") || !strings.Contains(got, "12.0s") || strings.Contains(got, "switch to x") {
		t.Error(got)
	}
	lost.Kind = event.WaitEnd
	v.Event(lost)
	if got := frame(); !strings.Contains(got, "switch to x") || strings.Contains(got, "unreachable") {
		t.Error(got)
	}
	// Waits that belong to no node, before any phase has begun.
	v.Event(event.Event{Time: now, Kind: event.PhaseEnd, Phase: event.Deploy})
	v.Event(event.Event{Time: now, Kind: event.NodeResult, Phase: event.Deploy, Node: "web-1"})
	answer := event.Event{Time: now, Kind: event.Waiting, Phase: event.Provision, Text: "hypervisor a: its network", Since: now}
	v.Event(answer)
	if got := frame(); !strings.Contains(got, "provision hypervisor a: its network") {
		t.Error(got)
	}
	answer.Kind = event.WaitEnd
	v.Event(answer)
	if got := frame(); strings.Contains(got, "hypervisor") || len(v.progress.open) != 0 {
		t.Errorf("%q", got)
	}
}

// A node that is uncordoned after its result has no line when this has ended.
func TestUncordonedNodeHasNoLine(t *testing.T) {
	var p progress
	now := time.Now()
	for _, step := range []struct {
		e    event.Event
		want string // a part of the only line; "" if there is no line
	}{
		{event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: "w-1"}, "activate"},
		{event.Event{Kind: event.NodeResult, Phase: event.Deploy, Node: "w-1"}, ""},
		{event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: "w-1", Text: "is uncordoned once it is ready"}, "uncordoned"},
		{event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: "w-1"}, ""},
	} {
		step.e.Time = now
		p.apply(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Time: now})
		p.apply(step.e)
		lines := formatLines(&p, 80, 10, now)[1:]
		if step.want == "" && len(lines) > 0 || step.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], step.want)) {
			t.Errorf("after %s %s: %q, want %q", step.e.Kind, step.e.Phase, lines, step.want)
		}
	}
}

func TestCopyShowsRateAndTimeLeft(t *testing.T) {
	var p progress
	begin := time.Now()
	p.apply(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: "w-1", Time: begin})
	for _, step := range []struct {
		after time.Duration
		done  int
		want  string
	}{
		{0, 0, "0 B of 400.0 MiB, 1 of 2 paths"},
		{500 * time.Millisecond, 50 << 20, "50.0 MiB of 400.0 MiB, 1 of 2 paths"},
		{2 * time.Second, 100 << 20, "100.0 MiB of 400.0 MiB, 50.0 MiB/s, 6s left, 1 of 2 paths"},
		{23 * time.Second, 400 << 20, "400.0 MiB of 400.0 MiB, 1 of 2 paths"},
	} {
		now := begin.Add(step.after)
		p.apply(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: "w-1", Time: now, Done: step.done, Total: 400 << 20, Text: "1 of 2 paths"})
		if text := p.open[0].describe(now); text != step.want {
			t.Errorf("after %v: %q, want %q", step.after, text, step.want)
		}
	}
}

// A part of the command with a log of its own has live lines for its nodes, of which nothing remains. Without a terminal, it has none.
func TestFollow(t *testing.T) {
	var out strings.Builder
	v := newView(Options{Out: io.Discard, Err: &out}, true)
	now := time.Now()
	v.Event(event.Event{Time: now, Kind: event.Waiting, Phase: event.Check, Text: "trial 1 of 2, deploy", Since: now})
	send, end := v.Follow()
	for i, kind := range []event.Kind{event.PhaseStart, event.NodeStart, event.NodeStart, event.PhaseEnd, event.NodeResult} {
		name := []string{"", "web-1", "web-2", "", "web-1"}[i]
		send(event.Event{Time: now, Kind: kind, Phase: []event.Phase{event.Build, event.Copy, event.Boot, event.Build, event.Deploy}[i], Node: name, Text: "x"})
	}
	lines := func() string { return strings.Join(formatLines(&v.progress, 80, 20, now), "\n") }
	if got := lines(); !strings.Contains(got, "trial 1 of 2, deploy") || !strings.Contains(got, "web-2 boot") || strings.Contains(got, "web-1") || out.String() != "" {
		t.Errorf("%s\nwritten: %q", got, out.String())
	}
	if end(); strings.Contains(lines(), "web-2") || !strings.Contains(lines(), "trial 1 of 2, deploy") {
		t.Errorf("at the end: %s", lines())
	}
	plain := newView(Options{Out: io.Discard, Err: &out}, false)
	send, _ = plain.Follow()
	if send(event.Event{Time: now, Kind: event.NodeStart, Node: "web-1", Phase: event.Copy}); len(plain.progress.open) > 0 {
		t.Errorf("without a terminal: %+v", plain.progress.open[0])
	}
}
