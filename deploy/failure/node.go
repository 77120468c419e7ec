package failure

import "strings"

// OnNode is an error about a node. The message of the error is the node's name, `: `, and the text that the method OnNode returns.
type OnNode interface {
	error
	OnNode() (node, text string)
}

// On returns err as an error about a node. It returns nil for nil.
func On(node string, err error) error {
	if err == nil {
		return nil
	}
	return &nodeError{node, err}
}

type nodeError struct {
	node string
	err  error
}

func (e *nodeError) Error() string               { return Message(e) }
func (e *nodeError) Unwrap() error               { return e.err }
func (e *nodeError) OnNode() (node, text string) { return e.node, TextOn(e.node, e.err) }

// Message returns the message of an error about a node. The method Error of such an error calls it.
func Message(e OnNode) string {
	node, text := e.OnNode()
	return node + ": " + text
}

// TextOn returns the message of err without the name of the node, if err is an error about this node. It is for
// texts that begin with the name of the node. TextOn also examines the causes of err, as long as each message
// begins with the message of its cause.
func TextOn(node string, err error) string {
	if e, ok := err.(OnNode); ok {
		if of, text := e.OnNode(); of == node {
			return text
		}
		return err.Error()
	}
	if cause := firstCause(err); cause != nil {
		if rest, ok := strings.CutPrefix(err.Error(), cause.Error()); ok {
			return TextOn(node, cause) + rest
		}
	}
	return err.Error()
}

func firstCause(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		if causes := e.Unwrap(); len(causes) > 0 {
			return causes[0]
		}
	case interface{ Unwrap() error }:
		return e.Unwrap()
	}
	return nil
}
