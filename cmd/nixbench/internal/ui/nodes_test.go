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
