package rollout

import (
	"context"
	"errors"
	"maps"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// VersionChanges returns, by node name, the version changes of the engines if these nodes were deployed. The
// error joins the errors of the engines, such as a refused version.
func VersionChanges(ctx context.Context, makers Engines, f *fleet.Fleet, hive *nixeval.Hive, nodes []nixeval.Node) (map[string]engine.Change, error) {
	if makers == nil { // nodes without an engine
		return nil, nil
	}
	engines, err := makers.Of(hive, f)
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
			_, err := engine.LookAt(e).While(ctx, func(text string) { reporter{f.Send()}.warn("", errors.New(text)) }, func(ctx context.Context) error {
				changes, err := v.Versions(ctx, names)
				maps.Copy(all, changes)
				return err
			})
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// IsVersionRefused reports whether an error is an engine's refusal of a version.
func IsVersionRefused(err error) bool {
	var e *engine.VersionError
	return errors.As(err, &e)
}
