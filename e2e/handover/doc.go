// Package handover tests that nodes go over from one scheduler to another one in place: the programs of modules/handover,
// and nodes of the lab that go over between Kubernetes and SLURM, which is skipped unless NIXBENCH_E2E=1.
package handover
