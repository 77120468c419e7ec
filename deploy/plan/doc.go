// Package plan decides what a run does to each node, and in which order. It changes no files and no nodes. The command plan prints
// the decisions, and apply executes the same decisions, so that the two cannot disagree.
//
// [DecideNode] decides about one node. [Decide] orders the nodes into waves and lists the drains.
package plan
