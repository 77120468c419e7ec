// Package memgroup limits and measures the memory of processes by a cgroup, of version 1 or 2.
//
// A process enters a [Group] before it starts its children, so that all of them are limited together. The kernel kills
// one of them if they need more than the limit.
package memgroup
