// Package deployments measures deployments to the machines of a lab (e2e/lab): the first apply of a fresh closure, an
// apply without changes, one changed line, new, changed and unchanged keys, and a large store path for one machine and
// for all.
//
// [Run] starts the lab, and runs each scenario several times, with one program or with two in turn. What a scenario
// costs on the nodes comes from the host: the processor time from the nodes' cgroups, the started programs from the
// kernel's process events, the logins from the nodes' journals. So measuring adds nothing to the figures.
package deployments
