// Package node changes one node: it inspects it, copies a closure, uploads keys, activates a system, rolls
// back, and reboots.
//
// [Changer.Deploy] is the whole deployment of a node. [Changer.ApplySystem] is the one way by which a system
// gets onto a node: for a deployment, for a rollback, and to restore a node after a failed run.
package node
