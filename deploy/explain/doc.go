// Package explain tells where the time of a run went: per phase, per node, and along
// the critical path, the chain of phases that the end of the run waited for. It only
// computes; events come from a run's record.
//
// The critical path is found backwards from the end of the run: what ended last, what
// ended last before that began, and so on. A node's own phase before is preferred
// where it ended about as late as any. Where nothing had just ended, but a phase of
// the run as a whole was under way, that is what was waited for. Time on the path that no
// phase covers is our own.
package explain
