package deploy

import (
	"context"
	"errors"
	"maps"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// versions asks the hive's engines what would change if these nodes were deployed.
func (d *Deployer) versions(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node) (map[string]engine.Change, error) {
	if d.Engines == nil { // a node by itself
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

// forbidden tells whether an engine refuses a version.
func forbidden(err error) bool {
	var e *engine.VersionError
	return errors.As(err, &e)
}

// permitted evaluates and builds; what the engines do not permit is not built to its end. Where
// that fails nobody waits for machines that boot, only to ask what runs there.
func (r *run) permitted(ctx context.Context, nodes []nixeval.Node, looked inspections) (map[string]nixeval.Closure, error) {
	if !r.Goal.activates() {
		return r.makeClosures(ctx, nodes)
	}
	building, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	asking, enough := context.WithCancel(ctx)
	defer enough()
	asked := make(chan error, 1)
	go func() {
		var err error
		if r.anyDeployed(asking, looked) && asking.Err() == nil {
			_, err = r.versions(asking, r.hive, nodes)
		}
		if asking.Err() != nil {
			err = nil // it is about the cancelling
		}
		if err != nil {
			stop(err)
		}
		asked <- err
	}()
	closures, err := r.makeClosures(building, nodes)
	if err != nil && !r.KeepGoing {
		enough()
	}
	if refusal := <-asked; refusal != nil {
		return nil, refusal
	}
	return closures, err
}
