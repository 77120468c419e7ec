// Package fleet holds one connection to each node of a run, and calls functions for many nodes at once.
//
// [Fleet.Host] returns the connection to a node. For a machine that nixbench has booted, it uses the address and the host key in
// the state. For any other node, it uses the hive's deployment.targetHost, which the user's SSH configuration may resolve. If this
// option has several hosts, it uses the first that accepts a login. [Each] calls a function for every node; a failure of one node
// neither cancels nor delays the calls for other nodes.
package fleet
