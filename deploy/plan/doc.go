// Package plan decides, without effects, what a run does to each node. The command plan prints the decisions,
// and apply executes them, so that the two cannot disagree.
package plan
