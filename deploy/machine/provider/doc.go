// Package provider is the interface to the programs that run machines, such as libvirt: it defines the desired and the
// observed state of one machine, network and hypervisor, and the interface of a provider.
//
// A [Spec] is the desired state of one machine, an [Actual] its observed state. A [Provider] observes and changes one
// hypervisor.
// The real provider is the package libvirt, which only the command imports. The package fake is a simulated provider for the tests of
// other packages. The contract suite that both pass is in the tests of the package libvirt (suite_test.go).
//
// Only objects that carry nixbench's mark with the cluster's id are changed or removed.
package provider
