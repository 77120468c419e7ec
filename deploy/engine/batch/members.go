package batch

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nixbench/nixbench/deploy/engine"
)

// NodesOf returns the nodes of the hive that have a role.
func NodesOf(members []engine.Member, role string) []string {
	var out []string
	for _, m := range members {
		if m.Role == role {
			out = append(out, m.Node)
		}
	}
	return out
}

// FirstOf returns the first node of the hive that has a role, or an empty string.
func FirstOf(members []engine.Member, role string) string {
	for _, node := range NodesOf(members, role) {
		return node
	}
	return ""
}

// ReadSettings reads deployment.engine.settings of a node of the hive into settings, which contain the defaults before.
func ReadSettings(members []engine.Member, node string, settings any) error {
	for _, m := range members {
		if m.Node == node && len(m.Settings) > 0 {
			if err := json.Unmarshal(m.Settings, settings); err != nil {
				return fmt.Errorf("%s.deployment.engine.settings: %w", node, err)
			}
		}
	}
	return nil
}

// CountComputeNodes returns a number of compute nodes as a text.
func CountComputeNodes(n int) string {
	if n == 1 {
		return "1 compute node"
	}
	return strconv.Itoa(n) + " compute nodes"
}
