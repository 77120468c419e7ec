// Package provision tests nixbench on an empty hypervisor, with the real command, the real
// libvirt, and real boots. The tests are skipped unless NIXBENCH_E2E=1.
package provision
