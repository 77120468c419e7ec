// Package provision plans the machines of a cluster: it defines what a hive asks of a hypervisor, what the
// hypervisor reports, and the changes that make the two agree.
//
// A [Spec] is the desired state of one machine, an [Actual] its observed state. [Make] compares the two
// without any I/O and returns a [Plan]. A [Provider] executes the plan on one hypervisor. The real provider
// is the package libvirt below, which only the command imports; provisiontest is the contract suite that
// every provider must pass, and fakeprovider is a provider in memory for the tests of other packages.
//
// Only objects that carry nixbench's mark with the cluster's id are changed or removed.
package provision
