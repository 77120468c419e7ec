package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report contains the results of all seeds of a run of this program.
type report struct {
	workers int
	wall    time.Duration
	results []result
}

// line describes the result of a seed in one line, which is followed by its problems.
func (r result) line() string {
	text := fmt.Sprintf("seed %3d  %-11s %-24s in %-9s +%-7s %-4s exit %3d  operation %5.1f s  next apply %5.1f s  %s",
		r.seed, r.operation.name, r.fault.name, r.phase, r.delay, r.victim, r.exit, r.took.Seconds(), r.converge.Seconds(), r.verdict)
	if r.during != "" {
		text += ", open: " + r.during
	}
	for _, p := range r.problems {
		text += "\n    " + strings.ReplaceAll(p, "\n", "\n    ")
	}
	return text
}

func (rep report) count(v verdict) int {
	n := 0
	for _, r := range rep.results {
		if r.verdict == v {
			n++
		}
	}
	return n
}

// markdown returns the report as Markdown: the summary, and the lines of the seeds.
func (rep report) markdown() string {
	text := "# Faults\n\n" + rep.summary() + "\n"
	for _, r := range rep.results {
		text += "    " + strings.ReplaceAll(r.line(), "\n", "\n    ") + "\n"
	}
	return text
}

// summary returns the total numbers, and a Markdown table with a row for each fault.
func (rep report) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds: %d converged, %d failed, %d missed (the run ended before the fault); %.0f s with %d workers\n\n",
		len(rep.results), rep.count(converged), rep.count(failed), rep.count(missed), rep.wall.Seconds(), rep.workers)
	fmt.Fprintf(&b, "| %-24s | seeds | converged | failed | missed | exit codes | longest operation (s) | longest next apply (s) |\n|---|---|---|---|---|---|---|---|\n", "fault")
	for _, f := range faults {
		var of report
		codes := map[int]int{}
		var operation, next time.Duration
		for _, r := range rep.results {
			if r.fault.name == f.name {
				of.results = append(of.results, r)
				if r.verdict != missed {
					codes[r.exit]++
				}
				operation, next = max(operation, r.took), max(next, r.converge)
			}
		}
		fmt.Fprintf(&b, "| %-24s | %d | %d | %d | %d | %s | %.1f | %.1f |\n", f.name, len(of.results), of.count(converged), of.count(failed), of.count(missed), counts(codes), operation.Seconds(), next.Seconds())
	}
	return b.String()
}

// counts returns how often each exit code occurred, as text: `0: 3, 8: 1` means three times 0 and once 8.
func counts(codes map[int]int) string {
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		name := fmt.Sprint(code)
		if code < 0 {
			name = "signal"
		}
		parts = append(parts, fmt.Sprintf("%s: %d", name, codes[code]))
	}
	return strings.Join(parts, ", ")
}
