// Package bench contains the end-to-end tests of benchmarks: sweeps on containers that nixbench creates on an empty hypervisor of the lab.
package bench
