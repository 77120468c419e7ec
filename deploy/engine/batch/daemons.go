package batch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// ControlUnit starts or stops a unit on a node; verb is a command of systemctl.
func ControlUnit(ctx context.Context, c engine.Cluster, node, verb, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := c.Run(ctx, node, nil, "systemctl", verb, unit)
	return err
}

// UnitState is the state of a systemd unit.
type UnitState struct {
	Sub   string    // the sub-state, such as running, auto-restart or dead
	Since time.Time // when the unit became active; in whole seconds
}

// ReadUnit returns the state of a unit on a node.
func ReadUnit(ctx context.Context, c engine.Cluster, node, unit string) (UnitState, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := c.Run(ctx, node, nil, "systemctl", "show", "--timestamp=unix", "--property=SubState,ActiveEnterTimestamp", unit)
	if err != nil {
		return UnitState{}, err
	}
	var u UnitState
	for line := range strings.Lines(string(out)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "SubState":
			u.Sub = value
		case "ActiveEnterTimestamp":
			seconds, _ := strconv.ParseInt(strings.TrimPrefix(value, "@"), 10, 64) // empty for a unit that was never active
			u.Since = time.Unix(seconds, 0)
		}
	}
	return u, nil
}

// CheckUnits returns an error unless the units on a node work. The error contains the last error in the log of a unit.
func CheckUnits(ctx context.Context, c engine.Cluster, node string, units ...string) error {
	faults, err := c.Look(ctx, node, units...)
	for _, f := range faults {
		if err == nil && f.Unit != "" && !f.Runs {
			err = errors.New(f.String())
		}
	}
	return err
}

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
