package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/failure"
)

// HollowLabel is the label of a hollow node.
const HollowLabel = api.HollowLabel

// checkHollow returns a text for each machine whose hollow nodes are not those of the hive, or are not Ready. It asks the cluster only
// if the hive has hollow nodes.
func (e *Engine) checkHollow(ctx context.Context) ([]string, error) {
	expected := map[string]int{}
	for _, m := range e.Cluster.Members {
		var s settings
		if err := m.ReadSettings(&s); err != nil {
			return nil, err
		}
		if s.Hollow > 0 {
			expected[m.Node] = s.Hollow
		}
	}
	if len(expected) == 0 {
		return nil, nil
	}
	items, err := e.List(ctx, "get", "nodes", "-l", HollowLabel)
	if err != nil {
		return nil, err
	}
	hollow := map[string][]gjson.Result{} // by machine
	for _, n := range items {
		hollow[api.HollowMachine(n)] = append(hollow[api.HollowMachine(n)], n)
	}
	var problems []string
	for machine, want := range expected {
		ready := 0
		for _, n := range hollow[machine] {
			if api.IsReady(n) {
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
	_, err := e.Kubectl(ctx, "", "delete", "nodes", "-l", HollowLabel+"="+machine, "--wait=false")
	if err != nil && !errors.Is(err, api.ErrNoControlPlane) {
		return failure.On(machine, fmt.Errorf("delete its hollow nodes from the cluster: %w", err))
	}
	return nil
}
