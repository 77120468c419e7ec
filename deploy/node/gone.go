package node

import "fmt"

// GoneError is a rollback of a node that no longer has the target system.
type GoneError struct{ Node, What string }

func (e *GoneError) Error() string {
	return fmt.Sprintf("%s: roll back: the node has no %s (any more): it was removed, and perhaps collected as garbage", e.Node, e.What)
}

// Hint returns what to do about the error.
func (e *GoneError) Hint() string {
	return "nixbench generations lists what there is; nixbench apply with an older hive brings back the rest"
}
