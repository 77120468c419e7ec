package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// A node that is uncordoned after its result has no line when this has ended.
func TestUncordonedNodeHasNoLine(t *testing.T) {
	var ns nodeLines
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
		ns.applyEvent(step.e)
		lines := ns.draw(10, 80, now)
		if step.want == "" && len(lines) > 0 || step.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], step.want)) {
			t.Errorf("after %s %s: %q, want %q", step.e.Kind, step.e.Phase, lines, step.want)
		}
	}
}

func TestCopyShowsRateAndTimeLeft(t *testing.T) {
	var ns nodeLines
	begin := time.Now()
	progress := func(after time.Duration, done int) {
		ns.applyEvent(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: "w-1", Time: begin.Add(after), Done: done, Total: 400 << 20, Text: "1 of 2 paths"})
	}
	ns.applyEvent(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: "w-1", Time: begin})
	for _, step := range []struct {
		after time.Duration
		done  int
		want  string
	}{
		{0, 0, "0 B of 400.0 MiB  1 of 2 paths"},
		{500 * time.Millisecond, 50 << 20, "50.0 MiB of 400.0 MiB  1 of 2 paths"},
		{2 * time.Second, 100 << 20, "100.0 MiB of 400.0 MiB, 50.0 MiB/s, 6s left  1 of 2 paths"},
		{12 * time.Second, 150 << 20, "150.0 MiB of 400.0 MiB, 5.0 MiB/s, 50s left  1 of 2 paths"}, // only the last ten seconds count
		{18 * time.Second, 160 << 20, "160.0 MiB of 400.0 MiB, 3.8 MiB/s, 1m4s left  1 of 2 paths"},
		{23 * time.Second, 400 << 20, "400.0 MiB of 400.0 MiB  1 of 2 paths"},
	} {
		progress(step.after, step.done)
		if _, text, _ := ns[0].currentActivity(begin.Add(step.after)); text != step.want {
			t.Errorf("after %v: %q, want %q", step.after, text, step.want)
		}
	}
	// A transfer that has stopped has no rate. Not all samples of a long transfer are kept.
	for i := range 1000 {
		progress(30*time.Second+time.Duration(i)*100*time.Millisecond, min(i, 100)<<20)
	}
	if _, text, _ := ns[0].currentActivity(begin.Add(130 * time.Second)); text != "100.0 MiB of 400.0 MiB  1 of 2 paths" {
		t.Errorf("stopped: %q", text)
	}
	if n := len(ns[0].samples); n > 102 {
		t.Errorf("%d samples are kept", n)
	}
}
