package rollout

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/nixeval"
)

// UnevaluableMembersError is returned if deployed nodes can no longer be evaluated, so that their engine is
// unknown. Without this error, a running cluster whose control planes cannot be evaluated would be treated as
// no cluster, and all its nodes would change at once.
type UnevaluableMembersError struct {
	Nodes []string
	Err   *nixeval.EvalError
}

func (e *UnevaluableMembersError) Error() string {
	return fmt.Sprintf("%s; nothing is changed, because these nodes may be members of a running cluster: %s", e.Err, strings.Join(e.Nodes, ", "))
}
func (e *UnevaluableMembersError) Unwrap() error { return e.Err }

// Hint returns a text for the user: how to fix the error.
func (e *UnevaluableMembersError) Hint() string {
	return "fix their configuration in the hive; nixbench eval shows the errors"
}

// CheckMembersEvaluable returns an [UnevaluableMembersError] if the hive cannot be evaluated for a node that
// was deployed.
func CheckMembersEvaluable(hive *nixeval.Hive, deployed func(node string) bool) error {
	if len(hive.Broken) == 0 {
		return nil
	}
	e := &UnevaluableMembersError{Err: &nixeval.EvalError{Units: map[string]*nixeval.NixError{}}}
	for _, n := range hive.Nodes {
		if why := hive.Broken[n.Unit]; why != nil && deployed(n.Name) {
			e.Nodes = append(e.Nodes, n.Name)
			e.Err.Units[n.Unit] = why
		}
	}
	if len(e.Nodes) == 0 {
		return nil
	}
	return e
}
