package deploy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
)

// reportResult writes a node's result to the record of the run, and sends it as an event. The text is
// for a node that did not fail; for a failed node the text is made from the error.
func (d *Deployer) reportResult(r state.NodeResult, text string, err error) state.NodeResult {
	if err != nil {
		r.Error = err.Error()
		text = failureText(r, err)
	}
	d.Record.Result(r)
	d.Send.Send(event.Event{
		Kind: event.NodeResult, Phase: event.Deploy, Node: r.Node, Text: text,
		Failed: err != nil || r.Outcome == state.Skipped,
	})
	return r
}

// failureText formats a failed result in one line: `rolled back: unit nginx.service failed (exit 4)`.
func failureText(r state.NodeResult, err error) string {
	text := briefError(r.Node, err)
	switch r.Outcome {
	case state.RolledBack:
		return "rolled back: " + text
	case state.Skipped:
		return "skipped: " + strings.TrimPrefix(text, "skipped: ")
	}
	return "failed: " + text
}

// briefError formats an error in one line without the node's name, which the line begins with.
func briefError(node string, err error) string {
	var failed *activate.FailedError
	if errors.As(err, &failed) {
		return failed.Brief()
	}
	var lost *activate.LostSightError
	if errors.As(err, &lost) {
		return lost.Brief()
	}
	var boot *BootError
	if errors.As(err, &boot) {
		text, _, _ := strings.Cut(failure.TextOn(node, boot), "\n")
		return text
	}
	var down *remote.UnreachableError
	if errors.As(err, &down) {
		err = down // leave out the step that could not be done
	}
	text, _, _ := strings.Cut(failure.TextOn(node, err), "\n")
	return text
}

// countOutcomes formats the number of nodes per outcome: `2 switched, 1 failed`. word returns the
// word for an outcome.
func countOutcomes(outcomes []state.Outcome, word func(state.Outcome) string) string {
	order := []state.Outcome{state.Switched, Rebooted, state.Unchanged, state.RolledBack, state.Failed, state.Skipped}
	counts := map[state.Outcome]int{}
	for _, o := range outcomes {
		counts[o]++
	}
	var parts []string
	for _, o := range order {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], word(o)))
		}
	}
	return strings.Join(parts, ", ")
}

// summarize formats the number of results per outcome.
func summarize(results []state.NodeResult) string {
	var outcomes []state.Outcome
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
	}
	return countOutcomes(outcomes, func(o state.Outcome) string { return string(o) })
}

// activateText describes what a successful activation has changed.
func activateText(result activate.Result, before activate.Node) string {
	if !result.Changed {
		return "unchanged"
	}
	var text string
	switch result.Outcome {
	case activate.BootDefault:
		text = fmt.Sprintf("generation %d boots next", result.After.Generation)
		if result.After.Current == result.After.Profile {
			text = fmt.Sprintf("ran already; now it is generation %d", result.After.Generation)
		}
	case activate.Activated:
		text = "runs until the next boot"
	case activate.Committed:
		text = fmt.Sprintf("generation %d → %d", before.Generation, result.After.Generation)
		if before.Generation == 0 {
			text = fmt.Sprintf("generation %d, the first", result.After.Generation)
		}
	}
	if len(result.AlreadyFailing) > 0 {
		text += "; failed before, too: " + strings.Join(result.AlreadyFailing, ", ")
	}
	if result.RebootNeeded() {
		text += "; reboot for the new kernel"
	}
	return text
}

func dryText(result activate.Result) string {
	text := unitsText(result.Dry)
	var unknown *activate.UnknownProfileError
	if errors.As(result.Refused, &unknown) {
		text += "; but apply would refuse to replace " + unknown.Path + ", which was not deployed from here"
	}
	return text
}

func unitsText(d *activate.Dry) string {
	if d == nil {
		return "nothing would change"
	}
	var parts []string
	for _, p := range []struct {
		verb  string
		units []string
	}{{"stop", d.Stop}, {"restart", d.Restart}, {"reload", d.Reload}, {"start", d.Start}} {
		if len(p.units) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.units, ", "))
		}
	}
	if len(parts) == 0 {
		return "would change no unit"
	}
	return "would " + strings.Join(parts, "; ")
}
