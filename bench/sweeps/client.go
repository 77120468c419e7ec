package sweeps

import (
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// findClient returns the node on which the commands of a player run. This is the first node of the benchmark's client role. The result is
// empty if the benchmark has no client role. kind is the scheduler's engine. The error names what the hive lacks.
func (c *cluster) findClient(hive *nixeval.Hive, kind engine.Kind) (string, error) {
	role := c.sweep.Benchmark.Client
	if role == "" {
		return "", nil
	}
	index := slices.IndexFunc(hive.Nodes, func(n nixeval.Node) bool { return n.Role == role })
	if index < 0 {
		return "", failure.NewUsage("client = %q of the benchmark: the hive has no node of this role", role)
	}
	n := hive.Nodes[index]
	unit := hive.Unit(n.Unit)
	if unit == nil {
		return n.Name, nil // the evaluation of this node has failed; the build reports the error
	}
	if m := unit.Deployment.Engine; m != nil {
		return "", failure.WithHint(failure.NewUsage("client = %q of the benchmark: %s is a member of the cluster (%s %s), and a client must not be one", role, n.Name, kind.Title, m.Role),
			"add a role for the client")
	}
	if own := unit.Deployment.Client; own == nil || *own != kind.Name {
		hint := "nixbench has no module for clients of " + kind.Title + "; leave client out"
		if module := c.Schedulers[kind.Name].Client; module != "" {
			hint = fmt.Sprintf("add %s to the modules of the role %s for this scheduler", module, role)
		}
		return "", failure.WithHint(failure.NewUsage("client = %q of the benchmark: %s cannot submit jobs to %s", role, n.Name, kind.Title), hint)
	}
	return n.Name, nil
}
