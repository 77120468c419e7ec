// Package program is the player of a workload that a program of the user plays. The program runs on this computer. It gets the jobs on stdin,
// one JSON object per line, and prints events, one JSON object per line:
//
//	{"event": "begin"}
//	{"event": "submit", "id": "j1", "time": 1700000000000001}
//	{"event": "failed", "id": "j1", "time": 1700000000200001, "text": "exit status 3"}
//
// It prints begin when it is ready: from then on, the submission times of jobs and the time limit count. The other events are those of package
// player. Times are microseconds since the epoch. The program ends when all jobs have ended.
package program
