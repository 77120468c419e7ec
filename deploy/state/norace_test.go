//go:build !race

package state

// raceEnabled is for tests of speed: the detector slows everything down.
const raceEnabled = false
