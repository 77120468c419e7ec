// Package flux contains the end-to-end tests of the Flux modules and of their engine. The machines are containers that
// nixbench creates on an empty hypervisor of the lab. Flux is in no package registry: the tests on machines need the
// folder NIXBENCH_FLUX_SRC with checkouts of its repositories (see e2e/lab/README.md), and are skipped without it.
package flux
