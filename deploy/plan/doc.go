// Package plan decides, without touching anything, what a run is about. So far that
// is which nodes: the selection language of --on.
package plan
