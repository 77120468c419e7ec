package deployments

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func exampleReport() *report {
	r := &report{Machines: 2, Repeat: 2, Tools: []toolReport{{Label: "new", Program: "/a/nixbench"}, {Label: "against", Command: "colmena apply $GOAL"}}, Notes: []string{"a note"}}
	r.add(scenario{name: "line", title: "one line", budgets: []budget{{nodeCPU, 0.6, true}, {programs, 60, false}}}, scenarioResult{
		runs: map[string][]figures{
			"new":     {{wall: 2, nodeCPU: 1, logins: 2}, {wall: 3, nodeCPU: 2, logins: 3}},
			"against": {{wall: 10, nodeCPU: 0.5, logins: 5}, {wall: 10, nodeCPU: 1.5, logins: 5}},
		}})
	r.add(scenario{name: "copy-one", title: "one node"}, scenarioResult{runs: map[string][]figures{"new": {{wall: 2}}, "against": {{wall: 4}}}})
	r.add(scenario{name: "copy-all", title: "all nodes", budgets: []budget{{timesOne, 2, false}}}, scenarioResult{
		runs:   map[string][]figures{"new": {{wall: 3, operatorRead: 604e6}}},
		failed: map[string]error{"against": errors.New("exit status 1")}})
	return r
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	if err := exampleReport().print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `2 machines, medians of 2 runs, 0 busy loops, 0 generations added
new: /a/nixbench
against: colmena apply $GOAL
` + explanation + `

line: one line                  new      against   new/against   budget
  wall time                     2.50 s   10.00 s   0.25
  processor time of all nodes   1.50 s   1.00 s    1.50          at most 1.20 s  EXCEEDED
  logins on a node              2.5      5         0.50
  programs started on a node    -        -         -             at most 60  NOT MEASURED

copy-one: one node   new      against   new/against   budget
  wall time          2.00 s   4.00 s    0.50

copy-all: all nodes                    new      against   new/against   budget
  wall time                            3.00 s   -         -
  wall time / wall time for one node   1.50     -         -             at most 2.00
  read here: files, pipes, sockets     604 MB   -         -

copy-all: against failed: exit status 1
note: a note
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	r := exampleReport()
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machines  int
		Scenarios []struct {
			Name    string
			Median  map[string]map[string]float64
			Budgets map[string]float64
			Runs    map[string][]map[string]float64
			Failed  map[string]string
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	line, all := got.Scenarios[0], got.Scenarios[2]
	if got.Machines != 2 || line.Median["new"]["wallSeconds"] != 2.5 || line.Budgets["nodeCPUSeconds"] != 1.2 || len(line.Runs["against"]) != 2 || all.Failed["against"] == "" {
		t.Errorf("%s", text)
	}
}

// Without check, a budget that is exceeded is no failure.
func TestFindFailure(t *testing.T) {
	r := exampleReport()
	if err := r.findFailure(false); err == nil || !strings.Contains(err.Error(), "1 scenarios failed") {
		t.Errorf("a tool has failed: %v", err)
	}
	r.Scenarios = r.Scenarios[:2]
	if err := r.findFailure(false); err != nil {
		t.Errorf("without check: %v", err)
	}
	if err := r.findFailure(true); err == nil || !strings.Contains(err.Error(), "2 budgets exceeded") {
		t.Errorf("with check: %v", err)
	}
	r.Scenarios = r.Scenarios[1:]
	if err := r.findFailure(true); err != nil {
		t.Errorf("without exceeded budgets: %v", err)
	}
}
