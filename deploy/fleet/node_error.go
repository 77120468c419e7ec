package fleet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// NodeError is the failure of one node in one step.
type NodeError struct {
	Node string
	Step event.Phase
	Err  error
}

// Error names the node once: the wrapped error often begins with the node's name, too.
func (e *NodeError) Error() string {
	return e.Node + ": " + strings.TrimPrefix(e.Err.Error(), e.Node+": ")
}

func (e *NodeError) Unwrap() error { return e.Err }

// NoHostError is a node without an address.
type NoHostError struct {
	Node   nixeval.Node
	Booted bool // its machine was created
}

// Hint returns what to do about the error.
func (e *NoHostError) Hint() string {
	if e.Node.Role != "" {
		return "nixbench apply boots it, or finds its address"
	}
	return ""
}

func (e *NoHostError) Error() string {
	switch {
	case e.Booted:
		return fmt.Sprintf("%s: the address of its machine is not known yet", e.Node.Name)
	case e.Node.Role != "":
		return fmt.Sprintf("%s: its machine has not been booted yet, so it has no address", e.Node.Name)
	}
	return fmt.Sprintf("%s: deployment.targetHost is null, so it can only be deployed locally, with apply-local", e.Node.Name)
}

// Brief formats an error in one line without the node's name, which the line begins with.
func Brief(node string, err error) string {
	var brief interface{ Brief() string }
	if errors.As(err, &brief) {
		return brief.Brief()
	}
	var down *remote.UnreachableError
	if errors.As(err, &down) {
		err = down // leave out the step that could not be done
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), node+": "), "\n")
	return text
}
