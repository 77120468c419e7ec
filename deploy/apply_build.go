package deploy

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// buildIfVersionAllowed evaluates and builds the systems. At the same time it asks the engines whether they
// accept the new versions. If an engine refuses a version, the build is cancelled and the refusal is returned.
// If the evaluation or the build fails first, the request to the engines is cancelled, because it may wait for
// machines that are still booting.
func (r *run) buildIfVersionAllowed(ctx context.Context, eval *nixeval.Evaluator, nodes []nixeval.Node, inspected inspections) (map[string]nixeval.Closure, error) {
	if !r.Goal.Activates() {
		r.early.allow()
		return r.makeClosures(ctx, eval, nodes)
	}
	buildCtx, stopBuild := context.WithCancelCause(ctx)
	defer stopBuild(nil)
	askCtx, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	answered := make(chan error, 1)
	go func() {
		var err error
		if r.hasDeployedMember(askCtx, inspected) && askCtx.Err() == nil {
			_, err = rollout.VersionChanges(askCtx, r.Engines, r.Fleet, r.hive, nodes)
		}
		if askCtx.Err() != nil {
			err = nil // the error is about the cancellation
		}
		if err != nil {
			stopBuild(err)
		} else if askCtx.Err() == nil {
			r.early.allow()
		}
		answered <- err
	}()
	closures, err := r.makeClosures(buildCtx, eval, nodes)
	if err != nil && !r.KeepGoing {
		stopAsking()
	}
	if refusal := <-answered; refusal != nil {
		return nil, refusal
	}
	return closures, err
}

// makeClosures evaluates the systems of the nodes' units, and builds them on this computer. It does not
// build units with the option buildOnTarget, which are built later on their nodes. It returns the
// closure of each unit that did not fail, by the unit's name. If systems may be copied early, it builds systems while
// others are still being evaluated.
func (r *run) makeClosures(ctx context.Context, eval *nixeval.Evaluator, nodes []nixeval.Node) (map[string]nixeval.Closure, error) {
	if r.Goal == node.UploadKeys {
		return nil, nil
	}
	ctx, stopBuilds := context.WithCancel(ctx)
	defer stopBuilds()
	units := slices.DeleteFunc(selection.Units(nodes), r.buildsOnTarget)
	builds := eval.NewBuilds(len(units), r.hive.BuildersFile(), r.early.copyBatch)
	all, evalErr := r.plannedClosures(eval, nodes), error(nil)
	if all == nil {
		all, evalErr = instantiateEach(ctx, eval, r.hive, nodes, r.KeepGoing, func(part map[string]nixeval.Closure) {
			r.early.addNeeded(ctx, builds, part)
		})
		if evalErr == nil && r.Plan != nil && r.Plan.File != "" {
			evalErr = r.checkPlanFile(ctx, nodes)
		}
	}
	if len(all) == 0 || evalErr != nil && !r.KeepGoing {
		stopBuilds()
		_, err := builds.Finish(ctx, nil)
		var failed *nixeval.BuildError
		if errors.As(err, &failed) { // other errors say that the builds were stopped
			return nil, errors.Join(evalErr, err)
		}
		return nil, evalErr
	}
	local := maps.Clone(all)
	maps.DeleteFunc(local, func(unit string, _ nixeval.Closure) bool { return r.buildsOnTarget(unit) })
	var buildErr error
	if len(local) > 0 {
		var built []string
		built, buildErr = builds.Finish(ctx, local)
		for unit := range local {
			if !slices.Contains(built, unit) {
				delete(all, unit)
				delete(local, unit)
			}
		}
		if err := r.keepClosures(local); err != nil {
			return nil, errors.Join(evalErr, buildErr, err)
		}
		r.Copier.Expect(outPaths(local))
	}
	return all, errors.Join(evalErr, buildErr)
}

// plannedClosures returns the systems of the plan that Apply executes. It returns nil if there is no plan, if a system is missing in
// it, or if it was evaluated with other facts: those of machines that the plan creates are complete only now.
func (r *run) plannedClosures(eval *nixeval.Evaluator, nodes []nixeval.Node) map[string]nixeval.Closure {
	if r.Plan == nil || !bytes.Equal(r.Plan.facts, readFacts(eval)) {
		return nil
	}
	for _, unit := range selection.Units(nodes) {
		if _, found := r.Plan.closures[unit]; !found {
			return nil
		}
	}
	return maps.Clone(r.Plan.closures)
}

// keepClosures protects closures that were built on this computer from its garbage collector.
func (r *run) keepClosures(built map[string]nixeval.Closure) error {
	wait := r.Send.Wait(event.Event{Phase: event.Build, Text: "Nix, to keep what was built from its garbage collector"})
	defer wait.End()
	return r.Keep(built)
}

func outPaths(closures map[string]nixeval.Closure) []string {
	var out []string
	for _, c := range closures {
		out = append(out, c.Out)
	}
	return out
}

func (r *run) buildsOnTarget(unit string) bool {
	if r.BuildOnTarget != nil {
		return *r.BuildOnTarget
	}
	return r.hive.Unit(unit).Deployment.BuildOnTarget
}
