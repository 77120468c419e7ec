package kubernetes

import (
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
)

func TestContract(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) *enginetest.Cluster {
		c := &cluster{t: t, etcd: etcdOfThree, phases: "ready", refuse: map[string]string{},
			nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true), "w-2": node(true)}}
		return &enginetest.Cluster{
			Engine: c.engine("cp-1", "w-1", "w-2"), Nodes: [3]string{"cp-1", "w-1", "w-2"},
			BlockDrain: func(name string) { c.refuse["kubectl drain "+name] = "error: denied by a webhook" },
			Break:      func(name string) { c.nodes[name]["ready"] = false },
			Reopen:     func() engine.Engine { return c.engine("cp-1", "w-1", "w-2") },
		}
	})
}

// The engine has all capabilities: a method that two embedded types have would be no method of the engine.
var _ interface {
	engine.Engine
	engine.Admitter
	engine.Certified
	engine.Adjuster
	engine.Keyholder
	engine.DrainChecker
} = (*Engine)(nil)
