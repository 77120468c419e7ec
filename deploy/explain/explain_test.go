package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var begin = time.Date(2026, 11, 21, 1, 59, 0, 0, time.UTC)

// script makes events of lines like `1.2 4.1 copy web-1 failed`, in the order of time.
// `-` stands for an end that never came.
func script(lines ...string) []event.Event {
	type timed struct {
		at float64
		e  event.Event
	}
	var all []timed
	for _, l := range lines {
		f := append(strings.Fields(l), "", "")
		var from, to float64
		fmt.Sscan(f[0], &from)
		e := event.Event{Phase: event.Phase(f[2]), Node: f[3]}
		start, end := event.PhaseStart, event.PhaseEnd
		if e.Node != "" {
			start, end = event.NodeStart, event.NodeEnd
		}
		e.Kind = start
		all = append(all, timed{from, e})
		if f[1] == "-" {
			continue
		}
		fmt.Sscan(f[1], &to)
		e.Kind, e.Failed = end, f[4] == "failed"
		all = append(all, timed{to, e})
	}
	var out []event.Event
	for len(all) > 0 {
		first := 0
		for i := range all {
			if all[i].at < all[first].at {
				first = i
			}
		}
		e := all[first].e
		e.Time = begin.Add(time.Duration(all[first].at * float64(time.Second)))
		out = append(out, e)
		all = append(all[:first], all[first+1:]...)
	}
	return out
}

// pathOf is the critical path as text.
func pathOf(r Report) string {
	var s []string
	for _, c := range r.Critical {
		s = append(s, strings.TrimSpace(fmt.Sprintf("%s %s", c.Node, c.Phase))+fmt.Sprintf(" %.1f", time.Duration(c.Took).Seconds()))
	}
	return strings.Join(s, ", ")
}

var threeNodes = []string{
	"0 0.3 survey", "0.3 1.5 evaluate", "1.5 5.6 build",
	"0.3 0.5 connect web-1", "0.3 0.5 connect web-2", "0.3 0.6 connect web-3",
	"5.6 6.6 copy web-1", "5.6 6.0 copy web-2", "5.6 7.6 copy web-3",
	"6.6 6.7 keys web-1", "6.0 6.1 keys web-2",
	"7.65 9.7 activate web-1", "7.65 9.0 activate web-2", "7.65 10.9 activate web-3",
	"9.7 10.0 confirm web-1", "9.0 9.3 confirm web-2", "10.9 11.3 confirm web-3",
}

func TestCriticalPath(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
		other float64
	}{
		{"one after another", threeNodes,
			"survey 0.3, evaluate 1.2, build 4.1, web-3 copy 2.0, web-3 activate 3.2, web-3 confirm 0.4", 0.1},
		{"waves: the slowest of each",
			[]string{"0 1 build", "1 4 activate a", "1 2 activate b", "4 5 activate c", "4 7 activate d"},
			"build 1.0, a activate 3.0, d activate 3.0", 0},
		{"a barrier between copy and activate",
			[]string{"0 2 copy a", "0 6 copy b", "6 9 activate a", "6 7 activate b"},
			"b copy 6.0, a activate 3.0", 0},
		{"an equal sibling does not take the path over",
			[]string{"0 2 copy a", "0 2 copy b", "2 4 activate b", "2 3 activate a"},
			"b copy 2.0, b activate 2.0", 0},
		{"a node that copies while others are built",
			[]string{"0 1 evaluate", "1 9 build", "4 6 copy a", "6 10 activate a"},
			"evaluate 1.0, build 3.0, a copy 2.0, a activate 4.0", 0},
		{"builds and copies while other units are evaluated",
			[]string{"0 60 evaluate", "20 61 build", "20 40 copy a", "22 61.02 copy b", "61.03 65 copy c", "61.03 64 activate a", "65 70 activate c"},
			"evaluate 60.0, build 1.0, c copy 4.0, c activate 5.0", 0},
		{"a copy that is longer than the evaluation",
			[]string{"0 60 evaluate", "20 61 build", "20 80 copy a", "80 85 activate a"},
			"evaluate 20.0, a copy 60.0, a activate 5.0", 0},
		{"a phase around those of nodes",
			[]string{"0 5 activate", "1 4 activate a", "1 2 activate b"},
			"a activate 3.0", 2},
		{"killed",
			[]string{"0 1 build", "1 3 copy b", "1 - copy a", "2 - survey"},
			"build 1.0, a copy 2.0", 0},
		{"our own time in between",
			[]string{"0 1 build", "3 4 copy a"},
			"build 1.0, a copy 1.0", 2},
		{"nothing", nil, "", 0},
	} {
		r := explainEvents(script(c.lines...))
		if got := pathOf(r); got != c.want {
			t.Errorf("%s: path %s\nwant %s", c.name, got, c.want)
		}
		if got := fmt.Sprintf("%.1f", time.Duration(r.Other).Seconds()); got != fmt.Sprintf("%.1f", c.other) {
			t.Errorf("%s: %s s of our own, want %.1f", c.name, got, c.other)
		}
	}
}

// The time of the check is divided among its conditions. A condition that held at once is not printed.
func TestStepsOfCheck(t *testing.T) {
	events := script("0 1 build", "1 6 check")
	progress := func(at float64, done int, text string) event.Event {
		return event.Event{Time: begin.Add(time.Duration(at * float64(time.Second))), Kind: event.Progress, Phase: event.Check, Done: done, Text: text}
	}
	r := explainEvents(slices.Insert(events, 3, progress(1.5, 0, "the API answers: not yet"), progress(3, 1, "the API answers"),
		progress(3, 2, "3 nodes Ready"), progress(6, 3, "system pods run")))
	want := []Step{{"the API answers", Seconds(2 * time.Second)}, {"3 nodes Ready", 0}, {"system pods run", Seconds(3 * time.Second)}}
	if diff := cmp.Diff(want, r.Phases[1].Steps); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if r.Write(&b); !regexp.MustCompile(`check +5.0s\n +the API answers +2.0s\n +system pods run +3.0s\n`).MatchString(b.String()) {
		t.Error(b.String())
	}
}

// A retried phase, an end whose start is lost, a clock that is set back.
func TestOddEvents(t *testing.T) {
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	r := explainEvents([]event.Event{
		{Time: at(0), Kind: event.NodeEnd, Node: "a", Phase: event.Keys},
		{Time: at(1), Kind: event.NodeStart, Node: "a", Phase: event.Connect},
		{Time: at(3), Kind: event.NodeStart, Node: "a", Phase: event.Connect},
		{Time: at(4), Kind: event.NodeEnd, Node: "a", Phase: event.Connect},
		{Time: at(5), Kind: event.NodeStart, Node: "a", Phase: event.Copy},
		{Time: at(2), Kind: event.NodeEnd, Node: "a", Phase: event.Copy, Failed: true},
	})
	want := []Span{
		{Phase: event.Connect, Node: "a", Start: Seconds(time.Second), Took: Seconds(2 * time.Second), Unfinished: true},
		{Phase: event.Connect, Node: "a", Start: Seconds(3 * time.Second), Took: Seconds(time.Second)},
		{Phase: event.Copy, Node: "a", Start: Seconds(5 * time.Second), Failed: true},
	}
	if diff := cmp.Diff(want, r.Nodes[0].Spans); diff != "" {
		t.Error(diff)
	}
	if r.Nodes[0].Busy != Seconds(3*time.Second) {
		t.Errorf("busy %s", r.Nodes[0].Busy)
	}
}

// thousand nodes, activated in ten waves.
func thousand() []event.Event {
	rng := rand.New(rand.NewPCG(1, 2))
	var out []event.Event
	t := begin
	put := func(kind event.Kind, phase event.Phase, node string, at time.Time) {
		out = append(out, event.Event{Time: at, Kind: kind, Phase: phase, Node: node})
	}
	put(event.PhaseStart, event.Build, "", t)
	t = t.Add(20 * time.Second)
	put(event.PhaseEnd, event.Build, "", t)
	for wave := range 10 {
		next := t
		for i := range 100 {
			node, at := fmt.Sprintf("node-%d", wave*100+i+1), t
			for _, p := range []event.Phase{event.Connect, event.Copy, event.Keys, event.Activate, event.Confirm} {
				put(event.NodeStart, p, node, at)
				at = at.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
				put(event.NodeEnd, p, node, at)
			}
			if at.After(next) {
				next = at
			}
		}
		t = next
	}
	return out
}

func TestGolden(t *testing.T) {
	apply := explainEvents(script(threeNodes...))
	killed := explainEvents(script("0 0.4 survey", "0.4 62 evaluate", "62 65 copy a.very.long.name.of.a.node.example.org", "62 63 copy b",
		"63 65.5 activate b failed", "65 - activate a.very.long.name.of.a.node.example.org"))
	killed.Status, killed.Damaged = runs.StatusKilled, 1
	for name, r := range map[string]Report{
		"apply": apply, "killed": killed, "thousand": explainEvents(thousand()), "empty": explainEvents(nil),
		"build": explainEvents(script("0 0.3 survey", "0.3 1.5 evaluate", "1.5 1.51 build")),
	} {
		var b bytes.Buffer
		if r.Run = "20261121T015900Z-apply"; r.Status == "" {
			r.Status = runs.StatusDone
		}
		r.Write(&b)
		checkWidth(t, b.String())
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func checkWidth(t *testing.T, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestJSON(t *testing.T) {
	data, err := json.Marshal(explainEvents(script("0 1.5 build", "1.5 2 copy a")))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"started":"2026-11-21T01:59:00Z","total":2,"phases":[{"phase":"build","start":0,"took":1.5}],` +
		`"nodes":[{"node":"a","spans":[{"phase":"copy","node":"a","start":1.5,"took":0.5}],"busy":0.5}],` +
		`"critical":[{"phase":"build","start":0,"took":1.5},{"phase":"copy","node":"a","start":1.5,"took":0.5}],"other":0}`
	if string(data) != want {
		t.Errorf("%s\nwant %s", data, want)
	}
}

// For all events, the spans are within the time of the run, and the critical path has no overlaps.
func TestAnyEvents(t *testing.T) {
	kinds := []event.Kind{event.PhaseStart, event.PhaseEnd, event.NodeStart, event.NodeEnd, event.NodeLog}
	phases := []event.Phase{event.Survey, event.Build, event.Copy, event.Activate, "new"}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var events []event.Event
		for range rng.IntN(60) {
			e := event.Event{
				Time: begin.Add(time.Duration(rng.IntN(200)-20) * 10 * time.Millisecond),
				Kind: kinds[rng.IntN(len(kinds))], Phase: phases[rng.IntN(len(phases))], Failed: rng.IntN(5) == 0,
			}
			if e.Kind == event.NodeStart || e.Kind == event.NodeEnd {
				e.Node = fmt.Sprintf("node-%d", rng.IntN(4))
			}
			events = append(events, e)
		}
		if seed%2 == 0 { // half of them in order, as a real clock has them
			for i := range events {
				events[i].Time = begin.Add(time.Duration(i*37) * time.Millisecond)
			}
		}
		r := explainEvents(events)
		inside := func(s Span) bool { return s.Start >= 0 && s.Took >= 0 && s.end() <= r.Total }
		for _, n := range r.Nodes {
			for _, s := range n.Spans {
				if !inside(s) {
					t.Fatalf("seed %d: %+v is outside of %s", seed, s, r.Total)
				}
			}
			if n.Busy > r.Total {
				t.Fatalf("seed %d: %+v", seed, n)
			}
		}
		var sum, at Seconds
		for _, s := range r.Critical {
			if !inside(s) || s.Start < at {
				t.Fatalf("seed %d: step %+v overlaps the one before", seed, s)
			}
			sum, at = sum+s.Took, s.end()
		}
		if sum+r.Other != r.Total || r.Other < 0 {
			t.Fatalf("seed %d: path %s + other %s ≠ %s", seed, sum, r.Other, r.Total)
		}
		var b bytes.Buffer
		r.Write(&b)
		checkWidth(t, b.String())
	}
}

// A recorded run, from before its first event to after its last.
func TestExplainRun(t *testing.T) {
	d := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo"))
	l, err := d.Lock(context.Background(), state.Self("apply"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	rec, err := runs.Record(l, runs.Run{})
	if err != nil {
		t.Fatal(err)
	}
	sink := event.Sink(rec.RecordEvent)
	sink.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build})
	time.Sleep(10 * time.Millisecond)
	sink.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Build})
	time.Sleep(10 * time.Millisecond)
	if err := rec.End(0, nil); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Open(d, "last")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ExplainRun(run)
	if err != nil || r.Run != rec.ID() || r.Status != runs.StatusDone || len(r.Critical) != 1 {
		t.Fatal(r, err)
	}
	if want := Seconds(run.Ended.Sub(run.Started)); r.Total != want || r.Other < Seconds(10*time.Millisecond) {
		t.Errorf("total %s, want %s; other %s", r.Total, want, r.Other)
	}
}

func BenchmarkExplain(b *testing.B) {
	events := thousand()
	for b.Loop() {
		explainEvents(events)
	}
}

// Phases that run at the same time are not counted twice.
func TestBootDuringEvaluation(t *testing.T) {
	start := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	var events []event.Event
	add := func(second int, kind event.Kind, phase event.Phase, node string) {
		events = append(events, event.Event{Time: start.Add(time.Duration(second) * time.Second), Kind: kind, Phase: phase, Node: node})
	}
	add(0, event.PhaseStart, event.Provision, "")
	add(0, event.PhaseStart, event.Evaluate, "")
	add(0, event.PhaseStart, event.Image, "")
	add(2, event.PhaseEnd, event.Image, "")
	add(2, event.NodeStart, event.Boot, "w-1")
	add(3, event.NodeStart, event.Boot, "w-2")
	add(4, event.PhaseEnd, event.Evaluate, "")
	add(4, event.PhaseStart, event.Build, "")
	add(5, event.PhaseEnd, event.Build, "")
	add(6, event.NodeEnd, event.Boot, "w-1")
	add(9, event.NodeEnd, event.Boot, "w-2")
	add(9, event.PhaseEnd, event.Provision, "")
	r := explainEvents(events)
	if r.Other != 0 {
		t.Errorf("%+v", r)
	}
	for _, s := range r.Critical { // the machines of a phase are more specific than the phase
		if s.Phase == event.Provision {
			t.Errorf("critical: %+v", r.Critical)
		}
	}
}

// explainEvents computes the report of events, which must be in the order in which they were sent.
func explainEvents(events []event.Event) Report {
	first, last := timeRange(events)
	return makeReport(events, first, last)
}

// The time in which the run waited for an answer is a phase of the run.
func TestAnswersArePhases(t *testing.T) {
	events := script("0 1 evaluate", "12 13 build", "13 14 boot web-1")
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	events = append(events, event.Event{Kind: event.Answer, Since: at(2), Time: at(12)})
	r := makeReport(events, begin, at(14))
	if got, want := pathOf(r), "evaluate 1.0, answer 10.0, build 1.0, web-1 boot 1.0"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if got, want := r.Other, Seconds(time.Second); got != want {
		t.Errorf("our own time: got %v, want %v", got, want)
	}
}

// timeRange returns the earliest and the latest time of the events, or zero times if there are none.
func timeRange(events []event.Event) (first, last time.Time) {
	for _, e := range events {
		if first.IsZero() || e.Time.Before(first) {
			first = e.Time
		}
		if e.Time.After(last) {
			last = e.Time
		}
	}
	return first, last
}
