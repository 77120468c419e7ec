// Package program is the player of a workload that a program of the user plays. The program runs on this computer. The file
// NIXBENCH_JOBS has the jobs, one JSON object per line. The program prints events, one JSON object per line:
//
//	{"event": "begin"}
//	{"event": "submit", "id": "j1", "time": 1700000000000001}
//	{"event": "failed", "id": "j1", "time": 1700000000200001, "text": "exit status 3"}
//
// The program prints begin when it is ready, and then waits for a line on stdin. nixbench reads its counters and answers with
// {"event": "begin", "time": …}. From that time on, the submission times of jobs and the time limit count. The other events are
// those of package player. Times are microseconds since the epoch. The program ends when all jobs have ended.
package program
