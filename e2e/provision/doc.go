// Package provision tests nixbench on an empty hypervisor: the real command, the real
// libvirt, machines that really boot. The tests are skipped unless NIXBENCH_E2E=1.
package provision
