package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/failure"
)

// HollowLabel is the label of a hollow node, which modules/kubernetes/hollow.nix sets. Its value is the name of the machine that simulates the node.
const HollowLabel = "nixbench.dev/hollow"

// hollowMachineLabel is the path of the label of a machine that simulates nodes.
const hollowMachineLabel = `metadata.labels.nixbench\.dev/hollow-machine`

// hollowMachine returns the machine of a hollow node, or an empty string.
func hollowMachine(n gjson.Result) string {
	return n.Get(`metadata.labels.nixbench\.dev/hollow`).String()
}

// listHollow returns the hollow nodes by machine.
func (e *Engine) listHollow(ctx context.Context) (map[string][]gjson.Result, error) {
	items, err := e.listObjects(ctx, "get", "nodes", "-l", HollowLabel)
	if err != nil {
		return nil, err
	}
	all := map[string][]gjson.Result{}
	for _, n := range items {
		all[hollowMachine(n)] = append(all[hollowMachine(n)], n)
	}
	return all, nil
}

// checkHollow returns a text for each machine whose hollow nodes are not those of the hive, or are not Ready. It asks the cluster only
// if the hive has hollow nodes.
func (e *Engine) checkHollow(ctx context.Context) ([]string, error) {
	expected := map[string]int{}
	for _, m := range e.Cluster.Members {
		var s settings
		if err := decodeSettings(m, &s); err != nil {
			return nil, err
		}
		if s.Hollow > 0 {
			expected[m.Node] = s.Hollow
		}
	}
	if len(expected) == 0 {
		return nil, nil
	}
	hollow, err := e.listHollow(ctx)
	if err != nil {
		return nil, err
	}
	var problems []string
	for machine, want := range expected {
		ready := 0
		for _, n := range hollow[machine] {
			if isReady(n) {
				ready++
			}
		}
		if registered := len(hollow[machine]); registered != want || ready < want {
			problems = append(problems, fmt.Sprintf("%s: %d hollow nodes of %d are registered, %d are Ready", machine, registered, want, ready))
		}
		delete(hollow, machine)
	}
	for machine, nodes := range hollow {
		problems = append(problems, fmt.Sprintf("%s: %d hollow nodes are registered, and the hive has none", machine, len(nodes)))
	}
	slices.Sort(problems)
	return problems, nil
}

// removeHollow deletes the hollow nodes of a machine. Kubernetes deletes their pods.
func (e *Engine) removeHollow(ctx context.Context, machine string) error {
	_, err := e.runKubectl(ctx, "", "delete", "nodes", "-l", HollowLabel+"="+machine, "--wait=false")
	if err != nil && !errors.Is(err, errNoControlPlane) {
		return failure.On(machine, fmt.Errorf("delete its hollow nodes from the cluster: %w", err))
	}
	return nil
}
