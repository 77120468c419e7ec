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
	return &About{Node: node, Text: TextOn(node, err), Err: err}
}

// About is an error about a node. Error types embed it, and add a kind or fields that their callers need.
type About struct {
	Node, Text string // the message is "Node: Text"
	Advice     string // what the user can do; may be empty
	Err        error  // the cause; may be nil
}

func (e *About) Error() string               { return Message(e) }
func (e *About) OnNode() (node, text string) { return e.Node, e.Text }
func (e *About) Hint() string                { return e.Advice }
func (e *About) Unwrap() error               { return e.Err }

// Message returns the message of an error about a node. The method Error of such an error calls it.
func Message(e OnNode) string {
	node, text := e.OnNode()
	return node + ": " + text
}

// TextOn returns the message of err without the name of the node, if err is an error about this node. It is for texts that begin with
// the name of the node. TextOn also examines the causes of err, as long as each message begins with the message of its cause.
func TextOn(node string, err error) string {
	if e, ok := err.(OnNode); ok {
		if of, text := e.OnNode(); of == node {
			return text
		}
		return err.Error()
	}
	if all := causes(err); len(all) > 0 {
		if rest, ok := strings.CutPrefix(err.Error(), all[0].Error()); ok {
			return TextOn(node, all[0]) + rest
		}
	}
	return err.Error()
}
