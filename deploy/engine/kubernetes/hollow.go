package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/failure"
)

// HollowLabel is the label of a hollow node: a Node object without a machine of its own, which another machine simulates.
const HollowLabel = api.HollowLabel

// checkHollow returns a text for each machine whose hollow nodes (the nodes that it simulates) are not those of the hive, or are
// not Ready. It asks the cluster only if the hive has hollow nodes.
func (e checker) checkHollow(ctx context.Context) ([]string, error) {
	type count struct{ expected, registered, ready int }
	counts := map[string]count{}
	for _, m := range e.Cluster.Members {
		var s settings
		if err := m.ReadSettings(&s); err != nil {
			return nil, err
		}
		if s.Hollow > 0 {
			counts[m.Node] = count{expected: s.Hollow}
		}
	}
	if len(counts) == 0 {
		return nil, nil
	}
	items, err := e.List(ctx, "get", "nodes", "-l", HollowLabel)
	for _, n := range items {
		c := counts[api.HollowMachine(n)]
		if c.registered++; api.IsReady(n) {
			c.ready++
		}
		counts[api.HollowMachine(n)] = c
	}
	var problems []string
	for machine, c := range counts {
		if c.registered != c.expected || c.ready < c.expected {
			problems = append(problems, fmt.Sprintf("%s: %d hollow nodes of %d are registered, %d are Ready", machine, c.registered, c.expected, c.ready))
		}
	}
	slices.Sort(problems)
	return problems, err
}

// removeHollow deletes the hollow nodes that a machine simulates. Kubernetes then deletes the pods of these nodes.
func (e remover) removeHollow(ctx context.Context, machine string) error {
	_, err := e.Kubectl(ctx, "", "delete", "nodes", "-l", HollowLabel+"="+machine, "--wait=false")
	if err != nil && !errors.Is(err, api.ErrNoControlPlane) {
		return failure.On(machine, fmt.Errorf("delete its hollow nodes from the cluster: %w", err))
	}
	return nil
}
