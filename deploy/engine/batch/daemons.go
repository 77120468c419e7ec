package batch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// commandTimeout is the time limit of a command of systemd on a node.
const commandTimeout = 20 * time.Second

const (
	logLines = "10"
	// maxExplained is the maximum number of nodes whose logs an explanation contains. Further ones usually have the same
	// problem.
	maxExplained = 3
)

// ReadLog returns the last ten lines that journalctl prints on a node with filter, such as --unit=slurmd.service, or an
// empty string.
func ReadLog(ctx context.Context, c engine.Cluster, node, filter string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := c.Run(ctx, node, nil, "journalctl", "--no-pager", "--quiet", "--output=cat", "--lines="+logLines, filter)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Explain returns what ReadLog returns for the first nodes, with their names. filter returns the filter for a node.
func Explain(ctx context.Context, c engine.Cluster, nodes []string, filter func(node string) string) string {
	var b strings.Builder
	for _, node := range nodes[:min(maxExplained, len(nodes))] {
		if log := ReadLog(ctx, c, node, filter(node)); log != "" {
			fmt.Fprintf(&b, "%s:\n  %s\n", node, strings.ReplaceAll(log, "\n", "\n  "))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
