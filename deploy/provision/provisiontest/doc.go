// Package provisiontest is what every [provision.Provider] must do, as tests: the fake,
// the one for libvirt on its test driver, and on real hypervisors. A provider that passes
// can be cut off at any moment, and nothing is lost or left behind.
package provisiontest
