package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// DrainOptions contains what a drain may delete. By default a drain deletes only work that the engine creates again on another node.
type DrainOptions struct {
	// Allowed contains the [DrainOption.Name]s of the work that may be deleted permanently.
	Allowed []string
	// Whole is set if all members are drained, because all nodes go over to another engine. Then no work can move to another
	// member, and the drain must not wait until it has moved.
	Whole bool
	// Removal is set if the members are removed after the drain. Such a drain also drains members that an administrator has
	// already drained, and leaves out members that cannot be reached.
	Removal bool
	// Broken contains the nodes on which the engine's programs (such as the kubelet) do not work. The end of work on such a node
	// cannot be observed, so its drain has a short time limit, and remaining work is not an error.
	Broken []string
}

// ForRemoval returns the options of a drain before the removal of members.
func (o DrainOptions) ForRemoval() DrainOptions {
	o.Removal = true
	return o
}

// DrainOption is a kind of work that a drain deletes permanently only if the user allows it with --drain-delete.
type DrainOption struct {
	Name string // the value of --drain-delete
	Help string // which work it is
}

// DrainError is returned if the drain of one node fails.
type DrainError struct{ failure.About }

func NewDrainError(node string, err error) error {
	return &DrainError{failure.About{Node: node, Text: "drain: " + failure.TextOn(node, err), Err: err}}
}

// DrainChecker is an engine that can predict what a drain deletes, without changing anything.
type DrainChecker interface {
	// CheckDrain returns the work that [Engine.Drain] would delete permanently, and the work that would
	// block the drain, by node. Nodes that would not be drained are left out.
	CheckDrain(ctx context.Context, nodes []string, o DrainOptions) (map[string]DrainCheck, error)
}

// DrainCheck is the predicted result of the drain of one node.
type DrainCheck struct {
	Blocked []DrainItem `json:"blocked,omitempty"` // work that blocks the drain
	Deleted []DrainItem `json:"deleted,omitempty"` // work that the drain deletes permanently, because the options allow it
}

// DrainItem is work, such as a pod, that a drain deletes or that blocks a drain.
type DrainItem struct {
	Work   string `json:"work"`             // the name of the pod or other work, such as shop/web-0
	Reason string `json:"reason"`           // why the drain deletes the work, or why the work blocks the drain
	Option string `json:"option,omitempty"` // the flag that allows the drain to delete the work; may be empty
	Remedy string `json:"-"`                // what the user does about work that no option allows to delete
}

// Add adds work with the reason: to Deleted if the options o allow the drain to delete the work, and otherwise to Blocked.
func (c *DrainCheck) Add(o DrainOptions, option DrainOption, work, reason string) {
	into := &c.Blocked
	if slices.Contains(o.Allowed, option.Name) {
		into = &c.Deleted
	}
	*into = append(*into, DrainItem{Work: work, Reason: reason, Option: "--drain-delete " + option.Name})
}

// BlockedError is returned if a drain would delete work permanently without permission, or would never end.
type BlockedError struct {
	Nodes map[string][]DrainItem // node → work that blocks its drain
}

// maxShownItems is the maximum number of items of one node that the message of a BlockedError contains.
const maxShownItems = 10

// Error returns one line for each item that blocks a drain.
func (e *BlockedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode] for the first node. In the text, each line about another node begins with the name of that node.
func (e *BlockedError) OnNode() (first, text string) {
	var lines []string
	for _, node := range nixeval.SortedNames(e.Nodes) {
		items := e.Nodes[node]
		for _, item := range items[:min(len(items), maxShownItems)] {
			lines = append(lines, node+": drain: "+item.Work+" "+item.Reason)
		}
		if more := len(items) - maxShownItems; more > 0 {
			lines = append(lines, fmt.Sprintf("%s: drain: and %d more; nixbench plan lists them", node, more))
		}
	}
	first, text, _ = strings.Cut(strings.Join(lines, "\n"), ": ")
	return first, text
}

func (e *BlockedError) Kind() failure.Kind { return failure.Activation }

// Hint names the flags that allow the drain, and other solutions.
func (e *BlockedError) Hint() string {
	var flags, ways []string
	for _, items := range e.Nodes {
		for _, item := range items {
			if item.Option != "" {
				flags = append(flags, item.Option)
			} else {
				ways = append(ways, item.Remedy)
			}
		}
	}
	slices.Sort(flags)
	slices.Sort(ways)
	if flags = slices.Compact(flags); len(flags) > 0 {
		ways = append(ways, "with "+strings.Join(flags, " and ")+" the drain deletes it; or move it to another node yourself")
	}
	return strings.Join(append(slices.Compact(ways), "--no-drain changes the nodes without a drain"), "; ")
}
