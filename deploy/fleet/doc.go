// Package fleet holds one connection to each node of a run, and calls functions for many nodes at once.
//
// [Fleet.Host] says how a node is reached: by the hive's deployment.targetHost and the user's SSH
// configuration, or, for a machine that nixbench has booted, by its recorded address and pinned host key.
// [Each] calls a function for every node; a failure of one node neither cancels nor delays the others.
package fleet
