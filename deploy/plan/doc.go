// Package plan decides, without touching anything, which nodes a run is about and how many
// of them change at once: the selection language of --on, and waves.
package plan
