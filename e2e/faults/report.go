package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report contains the results of all seeds of a run of this program.
type report struct {
	Workers int      `json:"workers"`
	Wall    float64  `json:"wall"` // in seconds
	Results []result `json:"results"`
}

// line returns a line about the result of a seed, for the terminal.
func (r result) line() string {
	text := fmt.Sprintf("seed %3d  %-11s %-24s in %-9s +%-7s %-4s exit %3d  operation %5.1f s  next apply %5.1f s  %s",
		r.Seed, r.Operation, r.Fault, r.Phase, r.Delay, r.Victim, r.Exit, r.Took, r.Converge, r.Verdict)
	if r.Disturbed > 0 {
		text += " (second attempt; this machine stood still during the first one)"
	}
	for _, p := range r.Problems {
		text += "\n    " + strings.ReplaceAll(p, "\n", "\n    ")
	}
	return text
}

func (rep report) count(v verdict) int {
	n := 0
	for _, r := range rep.Results {
		if r.Verdict == v {
			n++
		}
	}
	return n
}

// write writes report.md and report.json to the folder dir.
func (rep report) write(dir string) error {
	data, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(rep.markdown()), 0o644)
}

// markdown returns the report as Markdown: the summary, a table of the seeds, and the problems of each seed that failed.
func (rep report) markdown() string {
	var b strings.Builder
	b.WriteString("# Faults\n\n" + rep.summary() + "\n")
	b.WriteString("| seed | operation | fault | moment | node | open phases | exit | operation (s) | next apply (s) | verdict |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rep.Results {
		fmt.Fprintf(&b, "| %d | %s | %s | %s + %s | %s | %s | %d | %.1f | %.1f | %s |\n",
			r.Seed, r.Operation, r.Fault, r.Phase, r.Delay, r.Victim, r.During, r.Exit, r.Took, r.Converge, r.Verdict)
	}
	for _, r := range rep.Results {
		if len(r.Problems) > 0 {
			fmt.Fprintf(&b, "\n## Seed %d\n\n%s; log: %s\n\n", r.Seed, choose(r.Seed), r.Log)
			for _, p := range r.Problems {
				b.WriteString("    " + strings.ReplaceAll(p, "\n", "\n    ") + "\n")
			}
		}
	}
	return b.String()
}

// summary returns the total numbers, and a Markdown table with a row for each fault.
func (rep report) summary() string {
	var b strings.Builder
	total := 0.0
	for _, r := range rep.Results {
		total += r.Total
	}
	fmt.Fprintf(&b, "%d seeds: %d converged, %d failed, %d missed (the run ended before the fault); %.0f s with %d workers, %.1f s per seed\n\n",
		len(rep.Results), rep.count(converged), rep.count(failed), rep.count(missed), rep.Wall, rep.Workers, total/float64(max(1, len(rep.Results))))
	fmt.Fprintf(&b, "| %-24s | seeds | converged | failed | missed | exit codes | longest operation (s) | longest next apply (s) |\n|---|---|---|---|---|---|---|---|\n", "fault")
	for _, f := range faults {
		var of report
		codes := map[int]int{}
		var operation, next float64
		for _, r := range rep.Results {
			if r.Fault == f.name {
				of.Results = append(of.Results, r)
				if r.Verdict != missed {
					codes[r.Exit]++
				}
				operation, next = max(operation, r.Took), max(next, r.Converge)
			}
		}
		fmt.Fprintf(&b, "| %-24s | %d | %d | %d | %d | %s | %.1f | %.1f |\n", f.name, len(of.Results), of.count(converged), of.count(failed), of.count(missed), counts(codes), operation, next)
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
