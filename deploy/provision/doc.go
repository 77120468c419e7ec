// Package provision plans the machines of a cluster: it defines the desired machines of a hive, the observed
// machines of a hypervisor, and the changes that bring the observed machines to their desired state.
//
// A [Spec] is the desired state of one machine, an [Actual] its observed state. [Make] compares both states
// without any I/O and returns a [Plan]. A [Provider] executes the plan on one hypervisor. The real provider
// is the subpackage libvirt, which only the command imports. The subpackage provisiontest is the contract suite that
// every provider must pass, and fakeprovider is a simulated provider for the tests of other packages.
//
// Only objects that carry nixbench's mark with the cluster's id are changed or removed.
package provision
