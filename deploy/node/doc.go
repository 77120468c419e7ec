// Package node changes one node: it inspects the node, copies a closure, uploads keys, activates a system, rolls back and reboots.
//
// [Changer.Deploy] is the whole deployment of a node. Every activation of a system calls [Changer.ApplySystem]:
// for a deployment, for a rollback, and to restore a node after a failed run.
package node
