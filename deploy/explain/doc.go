// Package explain computes how a run has used its time: per phase, per node, and along the critical
// path, the chain of phases that the end of the run waited for. The input is the recorded events of a run.
//
// The critical path is computed backwards: it ends with the phase that ended last, before which it has the phase that ended last before
// that one began, and so on. The time of the run that is in no phase of the path is nixbench's own time.
package explain
