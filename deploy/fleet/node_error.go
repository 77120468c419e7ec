package fleet

import (
	"errors"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// NodeError means that a step of the run (such as connect or copy) has failed on one node.
type NodeError struct {
	Node string
	Step event.Phase
	Err  error
}

// NewNodeError returns err as the error of a step on a node, or nil for nil.
func NewNodeError(node string, step event.Phase, err error) error {
	if err == nil {
		return nil
	}
	return &NodeError{Node: node, Step: step, Err: err}
}

func (e *NodeError) Error() string               { return failure.Message(e) }
func (e *NodeError) Unwrap() error               { return e.Err }
func (e *NodeError) OnNode() (node, text string) { return e.Node, failure.TextOn(e.Node, e.Err) }

func (e *NodeError) Kind() failure.Kind {
	switch e.Step {
	case event.Connect:
		return failure.Unreachable
	case event.Copy, event.Keys:
		return failure.Copy
	}
	return failure.Activation
}

// ErrNotBooted says that the machine of a node does not exist. Only apply creates it, so a check does not wait for it.
var ErrNotBooted = errors.New("its machine has not been booted yet, so it has no address")

// NewNoHostError returns the error that no address of a node is known. booted says whether the node's machine was created.
func NewNoHostError(n nixeval.Node, booted bool) error {
	err, hint := errors.New("deployment.targetHost is null, so it can only be deployed locally, with apply-local"), ""
	switch {
	case booted:
		err = errors.New("the address of its machine is not known yet")
	case n.Role != "":
		err = ErrNotBooted
	}
	if n.Role != "" {
		hint = "nixbench apply boots it, or discovers its address"
	}
	return failure.WithHint(failure.WithKind(failure.Unreachable, failure.On(n.Name, err)), hint)
}

// Brief returns the first line of an error, without the name of the node: the caller prints the name in front of the line.
func Brief(node string, err error) string {
	var brief interface{ Brief() string }
	if errors.As(err, &brief) {
		return brief.Brief()
	}
	var down *remote.UnreachableError
	if errors.As(err, &down) {
		err = down // without the step that failed because the machine is down, such as "copy"
	}
	text, _, _ := strings.Cut(failure.TextOn(node, err), "\n")
	return text
}
