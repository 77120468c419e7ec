// Package changes decides how the machines of a hive change.
//
// [Make] compares the desired machines with the observed and the recorded machines, without any I/O. It returns a
// [Plan], which contains a [Change] for each machine, and chooses the hypervisors, MACs and addresses of new machines.
package changes
