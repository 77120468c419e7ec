package deploy

import (
	"context"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// readFacts returns the facts that an evaluator passes to the hive. It returns nil if there are none, or if they cannot be read,
// which the evaluation reports.
func readFacts(e *nixeval.Evaluator) []byte {
	if e.Facts == "" {
		return nil
	}
	data, err := os.ReadFile(e.Facts)
	if err != nil {
		return nil
	}
	return data
}

// checkPlanFile returns an [OutdatedPlanError] if the hive no longer has the systems of the plan file that Apply executes: the hive
// may have changed since it was compared with the file, for example while the user read the question about machines. checkPlanFile
// evaluates the systems again with the facts of the plan, and builds nothing. It is called after the evaluation with the facts of
// this run, and so also notices a change during that evaluation.
func (s *systems) checkPlanFile(ctx context.Context) error {
	file := ""
	if s.Plan.facts != nil {
		dir, err := os.MkdirTemp("", "nixbench-plan-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "runtime.json")
		if err := os.WriteFile(file, s.Plan.facts, 0o600); err != nil {
			return err
		}
	}
	wait := s.Send.Wait(event.Event{Phase: event.Evaluate, Text: "Nix, to compare the hive with the plan " + s.Plan.File})
	defer wait.End()
	eval := s.Eval.WithoutFacts(nil).WithFacts(file) // its warnings were in the events already
	closures, err := Instantiate(ctx, eval, s.hive, s.nodes, false)
	if err != nil {
		return err
	}
	var changes []string
	for _, n := range s.nodes {
		if now, planned := closures[n.Unit], s.Plan.closures[n.Unit]; now.Drv != planned.Drv {
			changes = append(changes, n.Name+": "+describeOtherSystem(now.Out, planned.Out))
		}
	}
	if len(changes) > 0 {
		return &OutdatedPlanError{File: s.Plan.File, Made: s.Plan.Made, Changes: changes, Executing: true}
	}
	return nil
}
