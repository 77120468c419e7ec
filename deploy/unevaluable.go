package deploy

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/nixeval"
)

// UnreadError says that nodes were deployed of which the hive can no longer be read. What they are
// members of is not known then: without its control planes a living cluster would be taken for
// none, and changed all at once.
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

// unread is nil if the hive can be read of all nodes that were deployed.
func (d *Deployer) checkMembersEvaluable(hive *nixeval.Hive) error {
	if len(hive.Broken) == 0 {
		return nil
	}
	recorded := d.Store.State()
	e := &UnevaluableMembersError{Err: &nixeval.EvalError{Units: map[string]*nixeval.NixError{}}}
	for _, n := range hive.Nodes {
		if why := hive.Broken[n.Unit]; why != nil && recorded.Nodes[n.Name].Good != nil {
			e.Nodes = append(e.Nodes, n.Name)
			e.Err.Units[n.Unit] = why
		}
	}
	if len(e.Nodes) == 0 {
		return nil
	}
	return e
}
