// Package explain computes how a run has used its time: per phase, per node, and along the critical
// path, the chain of phases that the end of the run waited for. The input is the recorded events of a run.
//
// The critical path is computed backwards from the end of the run. The first phase found is the phase that
// ended last. The next phase is the phase that ended last before the found phase began, and so on. If several
// phases ended at about the same time, the previous phase of the same node is used, or else a phase of the whole run. If no phase ended shortly
// before the found phase began, a phase of the whole run that was running then is used, or else a phase of
// the same node. The time of the run that is in no phase of the path is nixbench's own time.
package explain
