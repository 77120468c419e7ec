// Package batch contains what the engines of batch systems have in common, such as SLURM and Flux: compute nodes run jobs,
// and one node has the queue. [Head] runs commands on that node, and [Pool] drains and checks the compute nodes.
package batch
