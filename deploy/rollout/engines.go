package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Engines maps the name of each kind of engine, such as kubernetes, to its constructor.
type Engines map[string]func(engine.Cluster) engine.Engine

// Of returns the engines of the hive, ordered by kind. They can run commands on their members, but not on those that the argument
// without names, because these nodes are about to be removed.
func (makers Engines) Of(hive *nixeval.Hive, f *fleet.Fleet, without ...string) ([]engine.Engine, error) {
	var out []engine.Engine
	all := engine.MembersByKind(hive)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		members := all[kind]
		newEngine := makers[kind]
		if newEngine == nil {
			return nil, fmt.Errorf("%s.deployment.engine.kind: this version of nixbench has no engine %q", members[0].Node, kind)
		}
		members = slices.DeleteFunc(members, func(m engine.Member) bool { return slices.Contains(without, m.Node) })
		out = append(out, newEngine(engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.Run}))
	}
	return out, nil
}

// VersionChanges returns how a deployment of these nodes would change the version of their engine, by node. An engine may refuse it.
func VersionChanges(ctx context.Context, makers Engines, f *fleet.Fleet, hive *nixeval.Hive, nodes []nixeval.Node) (map[string]engine.Change, error) {
	if makers == nil { // nodes without an engine
		return nil, nil
	}
	engines, err := makers.Of(hive, f)
	if err != nil {
		return nil, err
	}
	names := selection.Names(nodes)
	all := map[string]engine.Change{}
	var errs []error
	for _, e := range engines {
		_, err := engine.LookAt(e).While(ctx, func(text string) { f.EventSink().Warn("%s", text) }, func(ctx context.Context) error {
			changes, err := e.Versions(ctx, names)
			maps.Copy(all, changes)
			return err
		})
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// UnevaluableMembersError is returned if deployed nodes can no longer be evaluated, so that nixbench does not know their engine.
// Without this error, nixbench would assume that no cluster runs on these nodes, and would change all of them at once.
type UnevaluableMembersError struct {
	Nodes []string
	Err   *nixeval.EvalError
}

func (e *UnevaluableMembersError) Error() string {
	return fmt.Sprintf("%s; nothing is changed, because these nodes may be members of a running cluster: %s", e.Err, strings.Join(e.Nodes, ", "))
}

func (e *UnevaluableMembersError) Unwrap() error { return e.Err }
func (*UnevaluableMembersError) Hint() string {
	return "fix their configuration in the hive; nixbench eval shows the errors"
}

// CheckMembersEvaluable returns an [UnevaluableMembersError] if a node that was deployed before can no longer be evaluated.
func CheckMembersEvaluable(hive *nixeval.Hive, recorded *state.Store) error {
	e := &UnevaluableMembersError{Err: &nixeval.EvalError{Units: map[string]*nixeval.NixError{}}}
	for _, n := range hive.Nodes {
		if why := hive.Broken[n.Unit]; why != nil && recorded.Node(n.Name).LastConfirmed != nil {
			e.Nodes = append(e.Nodes, n.Name)
			e.Err.Units[n.Unit] = why
		}
	}
	if len(e.Nodes) == 0 {
		return nil
	}
	return e
}
