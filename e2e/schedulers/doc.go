// Package schedulers contains the end-to-end tests of the template `schedulers`: one hive for several schedulers. The
// machines are containers that nixbench creates on an empty hypervisor of the lab, with the programs of Kubernetes and SLURM.
package schedulers
