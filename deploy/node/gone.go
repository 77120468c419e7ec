package node

import (
	"fmt"

	"github.com/nixbench/nixbench/deploy/failure"
)

// GoneError is returned by a rollback if the node no longer has the target system.
type GoneError struct{ Node, What string }

func (e *GoneError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *GoneError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("roll back: the node no longer has %s: it was removed, and perhaps garbage-collected", e.What)
}

// Kind implements [failure.Classified].
func (e *GoneError) Kind() failure.Kind { return failure.Activation }

// Hint returns what to do about the error.
func (e *GoneError) Hint() string {
	return "nixbench generations lists the available generations; nixbench apply with an older hive deploys other systems again"
}
