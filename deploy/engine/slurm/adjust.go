package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine/batch"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Adjust implements [engine.Adjuster] for the features of dynamic compute nodes. It is needed because slurmd reports features
// only when it registers for the first time. The features of static nodes are in slurm.conf.
func (e *Engine) Adjust(ctx context.Context, nodes []string, dry bool) (map[string][]string, error) {
	registered, err := e.Nodes(ctx)
	if errors.Is(err, batch.ErrAbsent) {
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
		var s settings
		if err := m.ReadSettings(&s); err != nil {
			return changes, err
		}
		have, want := strings.Split(n["AvailableFeatures"], ","), s.Features
		if have[0] == "" || have[0] == "(null)" {
			have = nil
		}
		if m.HiveRole != "" && !slices.Contains(want, m.HiveRole) {
			want = append(want, m.HiveRole)
		}
		lines := append(linesFor("feature ", want, have), linesFor("no feature ", have, want)...)
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

func linesFor(prefix string, features, others []string) []string {
	var lines []string
	for _, f := range features {
		if !slices.Contains(others, f) {
			lines = append(lines, prefix+f)
		}
	}
	return lines
}
