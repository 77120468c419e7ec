// Package plan decides what a run does to each node. It changes no files and no nodes. The command plan prints
// the decisions, and apply executes the same decisions, so that the two cannot disagree.
package plan
