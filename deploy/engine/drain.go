package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DrainOptions say what a drain may do. By default it deletes nothing that the engine does not
// create again elsewhere.
type DrainOptions struct {
	BarePods   bool // delete pods that no controller creates again
	LocalData  bool // delete data that pods keep on the node
	ForRemoval bool // the member is removed afterwards
	// Broken: the member's own programs do not work, so nobody sees its work end. The drain is
	// short, and work that is left is no error.
	Broken bool
}

// DrainChecker is an engine that finds out before anything is changed what a drain would do.
type DrainChecker interface {
	// CheckDrain returns, by node, what a drain of these nodes deletes for good, and what it would
	// stop at. Nodes that would not be drained are left out.
	CheckDrain(ctx context.Context, nodes []string, o DrainOptions) (map[string]DrainCheck, error)
}

// DrainCheck is what a drain of one node means.
type DrainCheck struct {
	Blocked []DrainItem `json:"blocked,omitempty"` // the drain is refused while these are there
	Deleted []DrainItem `json:"deleted,omitempty"` // deleted for good, as the options allow
}

// DrainItem is a piece of work that is special for a drain.
type DrainItem struct {
	Work   string `json:"work"`             // shop/web-0
	Reason string `json:"reason"`           // in words
	Option string `json:"option,omitempty"` // the flag that allows to delete it
}

// BlockedError says that a drain would delete work for good, or never end.
type BlockedError struct {
	Nodes map[string][]DrainItem
}

const maxShownItems = 10 // of one node, in a message

// Error has one line for each piece of work.
func (e *BlockedError) Error() string {
	var lines []string
	for _, node := range slices.Sorted(maps.Keys(e.Nodes)) {
		items := e.Nodes[node]
		for i, item := range items {
			if i == maxShownItems && len(items) > maxShownItems+1 {
				lines = append(lines, fmt.Sprintf("%s: drain: and %d more; nixbench plan lists them", node, len(items)-i))
				break
			}
			lines = append(lines, node+": drain: "+item.Work+" "+item.Reason)
		}
	}
	return strings.Join(lines, "\n")
}

// Hint says which flags allow the drain.
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
		ways = append(ways, "with "+strings.Join(flags, " and ")+" the drain deletes it; or move it yourself")
	}
	if budget {
		ways = append(ways, "change the disruption budget or the number of its pods")
	}
	return strings.Join(append(ways, "--no-drain leaves everything where it is"), "; ")
}

// Inspector is an engine that can look at a member's own programs. The engine itself may miss
// them only much later.
type Inspector interface {
	// Inspect returns nil if they work. The error names the one that does not, with its last words.
	Inspect(ctx context.Context, node string) error
}
