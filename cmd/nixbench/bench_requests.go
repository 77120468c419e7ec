package main

import (
	"fmt"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
)

// requestRows returns a table of the requests of attempts by program and verb, without a row if there are none.
func requestRows(attempts []bench.Attempt) []ui.Row {
	rows := []ui.Row{{"TRIAL", "ATTEMPT", "PROGRAM", "VERB", "REQUESTS"}}
	for _, a := range attempts {
		for _, r := range player.SumVerbs(a.Requests) {
			rows = append(rows, ui.Row{fmt.Sprint(a.Trial), fmt.Sprint(a.Number), describeProgram(r), r.Verb, fmt.Sprint(r.Count)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}

// describeProgram returns the program of a request, and that it has sent the request.
func describeProgram(r player.Request) string {
	if r.Sent {
		return r.Program + " (sent)"
	}
	return r.Program
}

// requestCounts returns the requests of an attempt as rows of an export.
func requestCounts(a bench.Attempt) map[string]float64 {
	out := map[string]float64{}
	for _, r := range a.Requests {
		out[r.Name()] += float64(r.Count)
	}
	return out
}
