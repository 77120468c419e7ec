package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
)

// DrainOptions are the permissions of a drain. By default a drain deletes only work that the engine
// creates again on another node.
type DrainOptions struct {
	BarePods  bool // delete pods that no controller creates again
	LocalData bool // delete data that pods keep on the node
	// Broken are the nodes whose own programs do not work. The end of their work cannot be observed, so
	// their drain is short, and remaining work is not an error.
	Broken []string
}

// DrainError is the failure of the drain of one node.
type DrainError struct {
	Node string
	Err  error
}

func (e *DrainError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *DrainError) OnNode() (node, text string) {
	return e.Node, "drain: " + failure.TextOn(e.Node, e.Err)
}

func (e *DrainError) Unwrap() error { return e.Err }

// DrainChecker is an engine that can predict the effects of a drain before any change.
type DrainChecker interface {
	// CheckDrain returns, by node, the work that a drain would delete permanently and the work that
	// would block the drain. Nodes that would not be drained are left out.
	CheckDrain(ctx context.Context, nodes []string, o DrainOptions) (map[string]DrainCheck, error)
	// CheckDrainForRemoval does the same for [MemberRemover.DrainForRemoval].
	CheckDrainForRemoval(ctx context.Context, nodes []string, o DrainOptions) (map[string]DrainCheck, error)
}

// DrainCheck is the predicted effect of a drain of one node.
type DrainCheck struct {
	Blocked []DrainItem `json:"blocked,omitempty"` // the drain is refused while these exist
	Deleted []DrainItem `json:"deleted,omitempty"` // the drain deletes these permanently, as the options allow
}

// DrainItem is a piece of work that a drain deletes or that blocks a drain.
type DrainItem struct {
	Work   string `json:"work"`             // shop/web-0
	Reason string `json:"reason"`           // in words
	Option string `json:"option,omitempty"` // the flag that allows the drain to delete it
}

// BlockedError is returned if a drain would delete work permanently, or would never end.
type BlockedError struct {
	Nodes map[string][]DrainItem
}

const maxShownItems = 10 // lines for one node in a message

// Error returns one line for each piece of work.
func (e *BlockedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode] for the first of the nodes. The lines about other nodes name them.
func (e *BlockedError) OnNode() (first, text string) {
	var lines []string
	for i, node := range slices.Sorted(maps.Keys(e.Nodes)) {
		name := node + ": "
		if i == 0 {
			first = node
		}
		items := e.Nodes[node]
		for i, item := range items {
			if len(lines) == 0 {
				name = ""
			}
			if i == maxShownItems && len(items) > maxShownItems+1 {
				lines = append(lines, fmt.Sprintf("%sdrain: and %d more; nixbench plan lists them", name, len(items)-i))
				break
			}
			lines = append(lines, name+"drain: "+item.Work+" "+item.Reason)
			name = node + ": "
		}
	}
	return first, strings.Join(lines, "\n")
}

// Kind implements [failure.Classified].
func (e *BlockedError) Kind() failure.Kind { return failure.Activation }

// Hint names the flags that allow the drain.
func (e *BlockedError) Hint() string {
	var flags []string
	budget := false
	for _, items := range e.Nodes {
		for _, item := range items {
			if item.Option == "" {
				budget = true
			} else {
				flags = append(flags, item.Option)
			}
		}
	}
	slices.Sort(flags)
	flags = slices.Compact(flags)
	var ways []string
	if len(flags) > 0 {
		ways = append(ways, "with "+strings.Join(flags, " and ")+" the drain deletes it; or move it to another node yourself")
	}
	if budget {
		ways = append(ways, "change the disruption budget or the number of its pods")
	}
	return strings.Join(append(ways, "--no-drain changes the nodes without a drain"), "; ")
}

// Inspector is an engine that can check the programs of a member on its node. The cluster itself may
// report a failed program much later.
type Inspector interface {
	// Inspect returns nil if the programs work. Otherwise the error names the program that does not
	// work, with the last line of its log.
	Inspect(ctx context.Context, node string) error
}
