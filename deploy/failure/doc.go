// Package failure classifies errors. An error type of any package may implement [Classified] to declare its
// kind, and [OnNode] to declare that its message begins with the name of a node.
//
// cmd/nixbench chooses the exit code by the kinds of an error and of its causes. The package imports
// none of our packages, so that every package may import it.
package failure
