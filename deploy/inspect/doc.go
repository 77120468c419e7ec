// Package inspect reads the state of nodes: the systems that they run, and why systemd units failed. It also defines the
// conditions that the commands apply, check and status have in common. It changes nothing.
package inspect
