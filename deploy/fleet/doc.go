// Package fleet holds one connection to each node of a run, and calls functions for many nodes at once.
//
// [Fleet.Host] returns the connection to a node. The address of the node is the hive's deployment.targetHost,
// which the user's SSH configuration may resolve, or, for a machine that nixbench has booted, the recorded
// address with the pinned host key. Of several hosts, the first that accepts a login is used. [Each] calls a function for every node; a failure of one node neither
// cancels nor delays the others.
package fleet
