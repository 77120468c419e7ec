// Package explain computes how a run has used its time: per phase, per node, and along the critical
// path, the chain of phases that the end of the run waited for. Its input is the recorded events of a run.
//
// The critical path is computed backwards from the end of the run. It begins with the phase that ended
// last, continues with the phase that ended last before that one began, and so on. If several phases
// ended at about the same time, the previous phase of the same node is used. If no phase ended shortly
// before, and a phase of the whole run was running, that phase is used. Time on the path that no phase
// covers is nixbench's own time.
package explain
