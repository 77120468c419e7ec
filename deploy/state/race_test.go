//go:build race

package state

// raceEnabled is for tests of speed: the race detector slows them down.
const raceEnabled = true
