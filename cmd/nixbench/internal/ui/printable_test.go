package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// ownSequences are the escape sequences of this package: colours, and the erasure of live lines.
var ownSequences = regexp.MustCompile("\x1b\\[(?:0|1|2|32|33|1;31)m|\x1b\\[[0-9]+A|\r\x1b\\[J")

// Whatever a node, a log or a store path contains, a view shows it without characters that a terminal interprets.
func TestNothingIsInterpreted(t *testing.T) {
	const bad = "\x1b[8mhidden\x1b[2K\r\x9b\u009b31m\u202e\u200b\x07"
	kinds := []event.Kind{event.PhaseStart, event.PhaseEnd, event.UnitEnd, event.Message, event.BuildStart, event.BuildLog, event.BuildEnd, event.CopyStart, event.CopyEnd,
		event.Progress, event.NodeStart, event.NodeProgress, event.NodeLog, event.NodeEnd, event.NodeResult, event.Waiting, event.WaitEnd, event.Answer}
	for name, open := range map[string]func(o Options) *View{
		"plain": New,
		"JSON": func(o Options) *View {
			o.JSON = true
			return New(o)
		},
		"terminal": func(o Options) *View { return newView(o, true) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			v := open(Options{Out: &out, Err: &out, Verbose: true, Color: "always"})
			at := time.Now()
			for _, kind := range kinds {
				for _, failed := range []bool{false, true} {
					v.Event(event.Event{Time: at, Since: at, Kind: kind, Phase: event.Survey, Node: bad, Path: "/nix/store/abc-" + bad, Level: bad, Text: bad, Units: []string{bad}, Failed: failed, Done: 1, Total: 2})
				}
			}
			v.Event(event.Event{Kind: event.Waiting, Node: bad, Text: bad, Time: at, Since: at})
			v.mu.Lock()
			v.report(v.progress.open, at)
			v.mu.Unlock()
			v.Output(bad, bad)
			v.Pause(func() { fmt.Fprintln(v.Stderr(), bad) })
			v.Result([]string{bad}, func(w io.Writer) {
				fmt.Fprintln(w, bad)
				Table(w, []Row{{"NODE", bad}, {bad + "\nforged row", bad}})
				List(w, []Row{{bad + "\nforged row"}})
				WriteText(w, bad)
				WriteList(w, bad, []string{bad, bad}, "  ")
			})
			v.Problems(1, []Problem{{Where: bad, Message: bad, Hint: bad}})
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			text := ownSequences.ReplaceAllString(out.String(), "")
			if got := event.Printable(text); got != text || !strings.Contains(text, `\u001b[8mhidden`) {
				t.Errorf("it shows %q", text)
			}
			if strings.Contains(text, "\nforged") {
				t.Errorf("a cell has two lines: %q", text)
			}
		})
	}
}

// The text of a JSON value does not change.
func TestJSONKeepsItsMeaning(t *testing.T) {
	const text = "\u009b \u202e \U000e0041 \u200b"
	var out bytes.Buffer
	v := New(Options{Out: &out, Err: io.Discard, JSON: true})
	v.Result(text, nil)
	v.Close()
	var line struct{ Result string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Result != text {
		t.Errorf("%q, %v", out.String(), err)
	}
}
