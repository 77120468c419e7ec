package rollout

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/nixeval"
)

// UnevaluableMembersError says that deployed nodes can no longer be evaluated, so that their engine is
// unknown. Without this error, a running cluster whose control planes cannot be evaluated would be treated as
// no cluster, and all its nodes would change at once.
type UnevaluableMembersError struct {
	Nodes []string
	Err   *nixeval.EvalError
}

func (e *UnevaluableMembersError) Error() string {
	return fmt.Sprintf("%s; what nodes run together is not disturbed, since these may be part of it: %s", e.Err, strings.Join(e.Nodes, ", "))
}
func (e *UnevaluableMembersError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *UnevaluableMembersError) Hint() string {
	return "mend what the hive says of them; nixbench eval shows what is wrong with it"
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
