package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Adjust implements [engine.Adjuster] for the features of dynamic compute nodes. slurmd reports them only when it
// registers for the first time. The features of static nodes are in slurm.conf.
func (e *Engine) Adjust(ctx context.Context, nodes []string, dry bool) (map[string][]string, error) {
	registered, err := e.Nodes(ctx)
	if errors.Is(err, errNoController) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("slurm: %w", err)
	}
	changes := map[string][]string{}
	for _, m := range e.Cluster.Members {
		n, isMember := registered[m.Node]
		if !isMember || n.isStatic() || m.Role != Compute || !slices.Contains(nodes, m.Node) {
			continue
		}
		want, err := e.featuresOf(m)
		if err != nil {
			return changes, err
		}
		lines := compareFeatures(n.features(), want)
		if len(lines) == 0 {
			continue
		}
		if !dry {
			list := strings.Join(want, ",")
			if _, err := e.RunOnHead(ctx, "scontrol", "update", "nodename="+n["NodeName"], "availablefeatures="+list, "activefeatures="+list); err != nil {
				return changes, failure.On(m.Node, err)
			}
		}
		changes[m.Node] = lines
	}
	return changes, nil
}

// featuresOf returns the features of a compute node of the hive.
func (e *Engine) featuresOf(m engine.Member) ([]string, error) {
	s, err := e.settingsOf(m.Node)
	want := s.Features
	if m.HiveRole != "" && !slices.Contains(want, m.HiveRole) {
		want = append(want, m.HiveRole)
	}
	return want, err
}

// features returns the features of a registered node.
func (n node) features() []string {
	text := n["AvailableFeatures"]
	if text == "" || text == "(null)" {
		return nil
	}
	return strings.Split(text, ",")
}

// compareFeatures returns a line for each feature that is added or removed.
func compareFeatures(have, want []string) []string {
	var lines []string
	for _, f := range want {
		if !slices.Contains(have, f) {
			lines = append(lines, "feature "+f)
		}
	}
	for _, f := range have {
		if !slices.Contains(want, f) {
			lines = append(lines, "no feature "+f)
		}
	}
	return lines
}
