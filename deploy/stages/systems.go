package stages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// systems evaluates and builds the systems of nodes. Other goroutines can wait until a certain system is evaluated or built.
type systems struct {
	*run
	byUnit map[string]*system

	builds *nixeval.Builds // set, like ctx, before the first system is evaluated
	ctx    context.Context // ends when the builds are stopped
}

// system is the system of a unit of the evaluation. The field closure may be read after the channel evaluated is closed, and
// isBuilt after the channel built is closed.
type system struct {
	evaluated, built chan struct{}
	closure          nixeval.Closure
	isBuilt          bool // or, for a unit that is built on its node, evaluated
}

func newSystems(r *run) *systems {
	s := &systems{run: r, byUnit: map[string]*system{}}
	for _, unit := range selection.Units(r.nodes) {
		s.byUnit[unit] = &system{evaluated: make(chan struct{}), built: make(chan struct{})}
	}
	return s
}

// build evaluates the systems, and builds them on this computer. Units of the hive with the option buildOnTarget are evaluated but
// not built: their nodes build them later. If build fails, it does so for some or all units; closureOf says which ones exist.
func (s *systems) build(ctx context.Context, eval *nixeval.Evaluator) error {
	closures, err := s.evaluateAndBuild(ctx, eval)
	for unit, one := range s.byUnit { // release the goroutines that still wait for a system, also if it failed
		if !isClosed(one.evaluated) {
			one.closure = closures[unit]
			close(one.evaluated)
		}
		if !isClosed(one.built) {
			_, one.isBuilt = closures[unit]
			close(one.built)
		}
	}
	return err
}

// evaluateAndBuild returns the closure of each unit that did not fail, by the unit's name.
func (s *systems) evaluateAndBuild(ctx context.Context, eval *nixeval.Evaluator) (map[string]nixeval.Closure, error) {
	if s.Goal == node.UploadKeys {
		return nil, nil
	}
	ctx, stopBuilds := context.WithCancel(ctx)
	defer stopBuilds()
	units := slices.DeleteFunc(selection.Units(s.nodes), s.buildsOnTarget)
	s.ctx, s.builds = ctx, eval.NewBuilds(len(units), s.hive.Meta.MachinesFile, s.addBuilt)
	all, evalErr := s.plannedClosures(eval), error(nil)
	if all == nil {
		all, evalErr = Instantiate(ctx, eval, s.hive, s.nodes, s.KeepGoing, s.addEvaluated)
	}
	if len(all) == 0 || evalErr != nil && !s.KeepGoing {
		stopBuilds()
		_, err := s.builds.Finish(ctx, nil)
		var failed *nixeval.BuildError
		if errors.As(err, &failed) { // other errors say that the builds were stopped
			return nil, errors.Join(evalErr, err)
		}
		return nil, evalErr
	}
	local := maps.Clone(all)
	maps.DeleteFunc(local, func(unit string, _ nixeval.Closure) bool { return s.buildsOnTarget(unit) })
	if len(local) == 0 {
		return all, evalErr
	}
	built, buildErr := s.builds.Finish(ctx, local)
	for unit := range local {
		if !slices.Contains(built, unit) {
			delete(all, unit)
			delete(local, unit)
		}
	}
	if err := s.protect(local); err != nil {
		return nil, errors.Join(evalErr, buildErr, err)
	}
	return all, errors.Join(evalErr, buildErr)
}

// closureOf returns the system of a unit after build, and whether it exists.
func (s *systems) closureOf(unit string) (nixeval.Closure, bool) {
	if one := s.byUnit[unit]; one.isBuilt {
		return one.closure, true
	}
	return nixeval.Closure{}, false
}

// closures returns all systems that exist after build, by unit.
func (s *systems) closures() map[string]nixeval.Closure {
	all := map[string]nixeval.Closure{}
	for unit := range s.byUnit {
		if c, exists := s.closureOf(unit); exists {
			all[unit] = c
		}
	}
	return all
}

// addEvaluated gets the systems that one process has evaluated, while other systems are still being evaluated.
func (s *systems) addEvaluated(part map[string]nixeval.Closure) {
	for unit, c := range part {
		s.byUnit[unit].closure = c
		close(s.byUnit[unit].evaluated)
	}
}

// addBuilt gets systems that were built, while others are evaluated or built. err is the error of other builds in the same batch.
func (s *systems) addBuilt(built map[string]nixeval.Closure, err error) {
	if err != nil && !s.KeepGoing || s.protect(built) != nil {
		return // nothing to do: the run will fail, and report the error when everything is built
	}
	for unit := range built {
		s.byUnit[unit].isBuilt = true
		close(s.byUnit[unit].built)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitEvaluated waits until the system of a unit is evaluated. It returns false if ctx ends before.
func (s *systems) waitEvaluated(ctx context.Context, unit string) (nixeval.Closure, bool) {
	one := s.byUnit[unit]
	select {
	case <-one.evaluated:
		return one.closure, one.closure != nixeval.Closure{}
	case <-ctx.Done():
		return nixeval.Closure{}, false
	}
}

// buildAndWait builds the evaluated system of a unit now, and waits until it is built. It returns false if the build fails.
func (s *systems) buildAndWait(ctx context.Context, unit string) bool {
	one := s.byUnit[unit]
	s.builds.Add(s.ctx, map[string]nixeval.Closure{unit: one.closure})
	select {
	case <-one.built:
		return one.isBuilt
	case <-ctx.Done():
		return false
	}
}

// plannedClosures returns the systems of the plan that Apply executes. It returns nil if there is no plan or a system is missing
// in it. It also returns nil if the plan was evaluated with other facts than those of now: the facts of machines that the plan
// creates are complete only now.
func (s *systems) plannedClosures(eval *nixeval.Evaluator) map[string]nixeval.Closure {
	if s.Plan == nil || !bytes.Equal(s.Plan.facts, readFacts(eval)) {
		return nil
	}
	for unit := range s.byUnit {
		if _, found := s.Plan.Closures[unit]; !found {
			return nil
		}
	}
	return maps.Clone(s.Plan.Closures)
}

// protect makes garbage collector roots for closures that were built on this computer, and prepares their copies to nodes.
func (s *systems) protect(built map[string]nixeval.Closure) error {
	wait := s.Send.Wait(event.Event{Phase: event.Build, Text: "Nix, to keep what was built from its garbage collector"})
	defer wait.End()
	if err := s.Keep(built); err != nil {
		return err
	}
	var paths []string
	for _, c := range built {
		paths = append(paths, c.Out)
	}
	s.Copier.Expect(paths)
	return nil
}

func (s *systems) buildsOnTarget(unit string) bool {
	if s.BuildOnTarget != nil {
		return *s.BuildOnTarget
	}
	return s.hive.Unit(unit).Deployment.BuildOnTarget
}

// readFacts returns the facts that an evaluator passes to the hive, or nil.
func readFacts(e *nixeval.Evaluator) []byte {
	data, _ := os.ReadFile(e.Facts) // the evaluation reports an error
	return data
}

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
	failed := &nixeval.EvalError{}
	if evalErr != nil && !errors.As(evalErr, &failed) {
		return nil, evalErr
	}
	var built []string
	var buildErr error
	if len(closures) > 0 {
		built, buildErr = e.Build(ctx, closures, hive.Meta.MachinesFile)
	}
	out := make([]Closure, len(nodes))
	for i, n := range nodes {
		c, evaluated := closures[n.Unit]
		r := Closure{Node: n.Name, Unit: n.Unit, Drv: c.Drv, Path: c.Out, Built: slices.Contains(built, n.Unit)}
		switch {
		case r.Built:
		case failed.Units[n.Unit] != nil:
			r.Error = "evaluation: " + failed.Units[n.Unit].Error()
		case !evaluated:
			r.Error = "not built, because other nodes could not be evaluated"
		case buildErr != nil:
			r.Error = fmt.Sprintf("build: %v", buildErr)
		}
		out[i] = r
	}
	return out, errors.Join(evalErr, buildErr)
}
