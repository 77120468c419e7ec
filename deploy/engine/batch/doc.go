// Package batch contains what the engines of batch systems have in common, such as SLURM and Flux: their members run jobs,
// and one member has the queue. It waits for jobs and for members, and reads the logs of their daemons.
package batch
