package inspect

import (
	"context"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// FailureReasons returns the last error in the log of each failed systemd unit, by node and unit. It runs one command on each
// node that has failed systemd units.
func FailureReasons(ctx context.Context, f *fleet.Fleet, inspected []fleet.Outcome[activate.Node], parallel int) map[string]map[string]string {
	var nodes []nixeval.Node
	units := map[string][]string{}
	for _, o := range inspected {
		if o.Err == nil && len(o.Value.Failed) > 0 {
			nodes = append(nodes, o.Node)
			units[o.Node.Name] = o.Value.Failed
		}
	}
	return askEach(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (map[string]string, error) {
		faults, err := engine.Cluster{Run: f.Run}.FindFaults(ctx, n.Name, units[n.Name]...)
		reasons := map[string]string{}
		for _, fault := range faults {
			if fault.Unit != "" && fault.Log != "" { // Log has no lines of systemd, which are the same for every failure
				reasons[fault.Unit] = fault.Log
			}
		}
		return reasons, err
	})
}
