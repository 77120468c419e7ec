package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// Only nodes that are not members are admitted, and nodes whose machine was recreated.
func TestAdmit(t *testing.T) {
	e := &enginetest.Fake{}
	r := &run{Deployer: &Deployer{}, Options: Options{Options: plan.Options{Options: node.Options{Goal: node.Switch}}}}
	cluster := rollout.NewCluster([]engine.Engine{e}, nil)
	cluster.AddMember("cp-1", e, engine.Status{})
	cluster.AddMember("cp-2", e, engine.Status{})
	cluster.MarkRecreated("cp-2")
	r.admitPendingNodes(t.Context(), cluster, []nixeval.Node{{Name: "cp-1"}, {Name: "cp-2"}, {Name: "w-1"}})
	if diff := cmp.Diff([]string{"admit cp-2", "admit w-1"}, e.Calls); diff != "" {
		t.Error(diff)
	}
}
