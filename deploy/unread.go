package deploy

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/nixeval"
)

// UnreadError says that nodes were deployed of which the hive can no longer be read. What they are
// members of is not known then: without its control planes a living cluster would be taken for
// none, and changed all at once.
type UnreadError struct {
	Nodes []string
	Err   *nixeval.EvalError
}

func (e *UnreadError) Error() string {
	return fmt.Sprintf("%s; what nodes run together is not disturbed, since these may be part of it: %s", e.Err, strings.Join(e.Nodes, ", "))
}
func (e *UnreadError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *UnreadError) Hint() string {
	return "mend what the hive says of them; nixbench eval shows what is wrong with it"
}

// unread is nil if the hive can be read of all nodes that were deployed.
func (d *Deployer) unread(hive *nixeval.Hive) error {
	if len(hive.Broken) == 0 {
		return nil
	}
	known := d.Store.State()
	e := &UnreadError{Err: &nixeval.EvalError{Units: map[string]*nixeval.NixError{}}}
	for _, n := range hive.Nodes {
		if why := hive.Broken[n.Unit]; why != nil && known.Nodes[n.Name].LastConfirmed != nil {
			e.Nodes = append(e.Nodes, n.Name)
			e.Err.Units[n.Unit] = why
		}
	}
	if len(e.Nodes) == 0 {
		return nil
	}
	return e
}
