// Package flux is the player for instances of Flux that modules/flux sets up. A player submits the jobs of a benchmark. For the
// time of a workload, this player runs program.py on the leader. It is in Python because only Flux's modules for Python can read
// the journal of the job manager, which has the events of all jobs with microseconds. `flux submit` would start Python for each
// command. program.py sends requests without waiting for their answers, and writes the events to a file.
//
// The times are those in the jobs' event logs. A job is created at the event submit, placed at alloc, launched at start, and
// ends at finish, or at clean if it was cancelled before it ran. The events do not name tasks, which stamp their own first and last
// instruction. Flux starts all tasks of a job together, so each job is a gang.
package flux
