// Package runs writes and reads the records of runs in the state folder of a cluster, `runs/<id>/`:
//
//	run.json      what was run, when, and the result of each node
//	plan.json     the plan of the run
//	changes.json  what the run changed in the systems of its nodes
//	events.jsonl  its events, which contain the output of the nodes
//
// The holder of the cluster's lock writes with a [Recorder]. [List] and [Open] read, and need no lock. If the process
// of a run is killed, only the end of the run is missing in the record.
package runs
