// Package selection computes, without side effects, which nodes a run selects (the language of --on) and how
// many nodes change at the same time (waves).
package selection
