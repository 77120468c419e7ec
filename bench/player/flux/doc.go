// Package flux is the player for instances of Flux that modules/flux sets up. It runs one program on the leader for the time of a workload, in
// Python: `flux submit` starts Python for each command, and only Flux' modules for Python can read the journal of the job manager, which has
// the events of all jobs with microseconds. The program sends requests without waiting for their answers, and writes the events to a file.
//
// The times are those in the jobs' event logs: a job is created with the event submit, placed with alloc, runs with start, and ends with
// finish, or with clean if it was cancelled before. The events have no tasks. Flux starts all tasks of a job together, so each job is a gang.
package flux
