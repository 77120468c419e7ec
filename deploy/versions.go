package deploy

import (
	"context"
	"errors"
	"maps"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// versionChanges asks the engines of the hive which versions would change if these nodes were deployed.
func (d *Deployer) versionChanges(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node) (map[string]engine.Change, error) {
	if d.Engines == nil { // nodes without an engine
		return nil, nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	all := map[string]engine.Change{}
	var errs []error
	for _, e := range engines {
		if v, ok := e.(engine.Versioned); ok {
			changes, err := v.Versions(ctx, names)
			maps.Copy(all, changes)
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// isVersionRefused reports whether an error is an engine's refusal of a version.
func isVersionRefused(err error) bool {
	var e *engine.VersionError
	return errors.As(err, &e)
}

// buildIfVersionAllowed evaluates and builds. At the same time it asks the engines about the new versions, and
// cancels the build if one of them refuses. If evaluation or build fails first, it does not wait for booting
// machines only to ask them for versions.
func (r *run) buildIfVersionAllowed(ctx context.Context, eval *nixeval.Evaluator, nodes []nixeval.Node, inspected inspections) (map[string]nixeval.Closure, error) {
	if !r.Goal.Activates() {
		return r.makeClosures(ctx, eval, nodes)
	}
	buildCtx, stopBuild := context.WithCancelCause(ctx)
	defer stopBuild(nil)
	askCtx, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	answered := make(chan error, 1)
	go func() {
		var err error
		if r.anyMemberDeployed(askCtx, inspected) && askCtx.Err() == nil {
			_, err = r.versionChanges(askCtx, r.hive, nodes)
		}
		if askCtx.Err() != nil {
			err = nil // the error is about the cancellation
		}
		if err != nil {
			stopBuild(err)
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
