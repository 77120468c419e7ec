// Package bench runs benchmarks of schedulers.
//
// A sweep is the execution of one benchmark. Everything that determines the results is frozen before the first trial: the source of the
// hive, the systems of each configuration, the workloads, and the order of the trials. A trial is one cell of the benchmark in one block.
// An attempt of a trial counts only if its result is complete, so a sweep that was killed continues with the interrupted trial.
package bench
