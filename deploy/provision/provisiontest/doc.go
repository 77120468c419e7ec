// Package provisiontest is the contract suite that every [provision.Provider] must pass: the fake provider,
// the libvirt provider on libvirt's test driver, and the libvirt provider on real hypervisors. It interrupts
// the operations of a provider before each effect and checks that no object is lost or left behind.
package provisiontest
