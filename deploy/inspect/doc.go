// Package inspect reports the state of nodes, and changes nothing: what they run, why units failed, and the
// conditions that apply, check and status have in common.
package inspect
