package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// Engines contains the constructor of each kind of engine.
type Engines map[string]func(engine.Cluster) engine.Engine

// Of returns the engines of the hive, ordered by kind. Each engine can run commands on its members.
func (makers Engines) Of(hive *nixeval.Hive, f *fleet.Fleet) ([]engine.Engine, error) {
	return makers.Without(hive, f, nil)
}

// Without returns the engines of the hive, ordered by kind. The engines run no commands on the nodes in
// without, because these nodes are about to be removed.
func (makers Engines) Without(hive *nixeval.Hive, f *fleet.Fleet, without []string) ([]engine.Engine, error) {
	withMembers, err := makers.makeEngines(hive, f, without)
	var out []engine.Engine
	for _, t := range withMembers {
		out = append(out, t.engine)
	}
	return out, err
}

// engineWithMembers is an engine with its desired members.
type engineWithMembers struct {
	kind    string
	engine  engine.Engine
	members []engine.Member
}

// makeEngines returns the engines of the hive with their desired members, ordered by kind. The members in
// without are left out, because they are about to be removed and must not be asked.
func (makers Engines) makeEngines(hive *nixeval.Hive, f *fleet.Fleet, without []string) ([]engineWithMembers, error) {
	var out []engineWithMembers
	all := engine.MembersByKind(hive)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		members := all[kind]
		newEngine := makers[kind]
		if newEngine == nil {
			return nil, fmt.Errorf("%s.deployment.engine.kind: this version of nixbench has no engine %q", members[0].Node, kind)
		}
		members = slices.DeleteFunc(members, func(m engine.Member) bool { return slices.Contains(without, m.Node) })
		out = append(out, engineWithMembers{kind, newEngine(engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.Run}), members})
	}
	return out, nil
}
