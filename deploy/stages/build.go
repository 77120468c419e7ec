package stages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

type Closure struct {
	Node  string `json:"node"`
	Unit  string `json:"unit"`
	Drv   string `json:"drv,omitempty"`
	Path  string `json:"path,omitempty"`  // store path of the system
	Built bool   `json:"built"`           // whether the system is in the store
	Error string `json:"error,omitempty"` // why the system was not built
}

// Instantiate evaluates the systems of nodes. With keepGoing, it returns the closures of the systems that could be evaluated, and
// an error about the other nodes. Without keepGoing, it returns no closures if one of the systems cannot be evaluated. Unless each
// is nil, it is called with closures as soon as they are evaluated, as [nixeval.Evaluator.Instantiate] does.
func Instantiate(ctx context.Context, e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, keepGoing bool, each func(map[string]nixeval.Closure)) (map[string]nixeval.Closure, error) {
	failed := map[string]*nixeval.NixError{}
	var units []string
	for _, u := range selection.Units(nodes) {
		if err := hive.Broken[u]; err != nil {
			failed[u] = err
		} else {
			units = append(units, u)
		}
	}
	if each == nil || len(failed) > 0 && !keepGoing { // without keepGoing, the run will fail
		each = func(map[string]nixeval.Closure) {}
	}
	closures, err := e.Instantiate(ctx, units, each)
	var ee *nixeval.EvalError
	if err != nil && !errors.As(err, &ee) {
		return nil, err
	}
	if ee != nil {
		maps.Copy(failed, ee.Units)
	}
	if len(failed) == 0 {
		return closures, nil
	}
	if !keepGoing {
		closures = nil
	}
	return closures, &nixeval.EvalError{Units: failed}
}

// Build evaluates and builds the systems of nodes, and returns the result of every node.
// The error wraps an [*nixeval.EvalError], an [*nixeval.BuildError] or both.
func Build(ctx context.Context, e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, keepGoing bool) ([]Closure, error) {
	closures, evalErr := Instantiate(ctx, e, hive, nodes, keepGoing, nil)
	if evalErr != nil && !isEvalError(evalErr) {
		return nil, evalErr
	}
	var built []string
	var buildErr error
	if len(closures) > 0 {
		built, buildErr = e.Build(ctx, closures, hive.Meta.MachinesFile)
	}
	return closureResults(nodes, closures, built, evalErr, buildErr), errors.Join(evalErr, buildErr)
}

func isEvalError(err error) bool {
	var ee *nixeval.EvalError
	return errors.As(err, &ee)
}

// closureResults returns the result of each node. evalErr and buildErr are the errors of the evaluation and of the build; built
// are the units of the hive that were built.
func closureResults(nodes []nixeval.Node, closures map[string]nixeval.Closure, built []string, evalErr, buildErr error) []Closure {
	var ee *nixeval.EvalError
	errors.As(evalErr, &ee)
	out := make([]Closure, len(nodes))
	for i, n := range nodes {
		c, evaluated := closures[n.Unit]
		r := Closure{Node: n.Name, Unit: n.Unit, Drv: c.Drv, Path: c.Out, Built: slices.Contains(built, n.Unit)}
		switch {
		case r.Built:
		case ee != nil && ee.Units[n.Unit] != nil:
			r.Error = "evaluation: " + ee.Units[n.Unit].Error()
		case !evaluated:
			r.Error = "not built, because other nodes could not be evaluated"
		case buildErr != nil:
			r.Error = fmt.Sprintf("build: %v", buildErr)
		}
		out[i] = r
	}
	return out
}
