// Package provision is where machines come from: what is asked of a hypervisor, what
// it tells of itself, and what is to be done so that the two agree.
//
// A [Spec] is the wish for one machine, a [Actual] what is there. [Make] compares
// the two without touching anything and gives a [Plan]; [Provider] is what carries it
// out, one per hypervisor. The real one is in the package libvirt below, which only
// the command wires in; provisiontest holds what every provider must do, and fakeprovider
// one in memory for the tests of others.
//
// Only what carries our mark, with the cluster's id in it, is ever changed or removed.
package provision
