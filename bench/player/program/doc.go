// Package program is the player of a workload that a program of the user plays. The program runs on this computer, and docs/bench.md says
// what it reads and prints.
package program
