// Package slurm contains the end-to-end tests of the SLURM modules and of their engine. The machines are
// containers that nixbench creates on an empty hypervisor of the lab.
package slurm
