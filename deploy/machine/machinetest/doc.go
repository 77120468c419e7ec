// Package machinetest is the contract suite that every [provider.Provider] must pass: the fake provider,
// the libvirt provider on libvirt's test driver, and the libvirt provider on real hypervisors. It interrupts
// the operations of a provider before each change, and checks that each object is found and can be removed.
package machinetest
