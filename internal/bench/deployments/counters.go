package deployments

import (
	"context"
	"fmt"
	"slices"
)

// counters are values that only grow, of all nodes.
type counters struct {
	usages  []float64
	logins  []int
	started []treeCount // by node; the last element is the operator's side. nil if it is not counted
}

// readCounters waits until the nodes are quiet, and reads their counters.
func (r *runner) readCounters(ctx context.Context) (c counters, err error) {
	var quiet bool
	if c.usages, quiet, err = waitQuiet(ctx, r.hierarchy, r.nodes); err != nil {
		return c, err
	}
	if !quiet {
		r.addNote(fmt.Sprintf("the nodes still worked %v after a run: its figures do not contain all of their work", quietLimit))
	}
	if r.tracer != nil {
		var lost bool
		if c.started, lost = r.tracer.read(); lost {
			r.addNote("the kernel has discarded process events: the numbers of programs and processes are too small")
		}
	}
	for _, n := range r.nodes {
		count, err := n.countLogins(ctx)
		if err != nil {
			return c, err
		}
		c.logins = append(c.logins, count)
	}
	return c, nil
}

func (r *runner) addNote(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// addDifference adds the differences between two readings to the figures. nodes is the number of nodes on which the tool
// had to work.
func (c counters) addDifference(f figures, after counters, nodes int) {
	f[nodeCPU] = sum(after.usages) - sum(c.usages)
	for i := range c.logins {
		f[logins] = max(f[logins], float64(after.logins[i]-c.logins[i]))
	}
	if c.started == nil {
		return
	}
	for i, count := range after.started {
		newPrograms := float64(count.programs - c.started[i].programs)
		newProcesses := float64(count.processes - c.started[i].processes)
		if i < len(c.usages) {
			f[programs] += newPrograms / float64(nodes)
			f[processes] += newProcesses / float64(nodes)
		} else {
			f[operatorExecs] = newPrograms - 1 // without nsenter, which starts the tool
		}
	}
}
