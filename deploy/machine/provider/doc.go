// Package provider is the seam to the programs that run machines: it defines the desired and the observed state of one
// machine, network and hypervisor, and the interface of a provider.
//
// A [Spec] is the desired state of one machine, an [Actual] its observed state. A [Provider] observes and changes
// one hypervisor; the optional interfaces, such as [Console] and [Power], add what not every provider can do. The
// real provider is the package libvirt, which only the command imports. The package machinetest is the contract suite
// that every provider must pass, and fake is a simulated provider for the tests of other packages.
//
// Only objects that carry nixbench's mark with the cluster's id are changed or removed.
package provider
