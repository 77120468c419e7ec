package deployments

import (
	"encoding/binary"
	"slices"
)

// The kinds of a kernel's process event that are read: of struct proc_event in linux/cn_proc.h.
const (
	eventFork = 0x1
	eventExec = 0x2
)

// processEvent is the part of a process event that is read. Ids are those of processes, not of threads.
type processEvent struct {
	kind        uint32
	parent, pid uint32 // parent is 0 unless the kind is eventFork
}

// parseEvent parses a message of the kernel's process connector: a netlink header, a connector header, and the event.
// ok is false for a new thread, and for events that are not read.
func parseEvent(b []byte) (e processEvent, ok bool) {
	const headers, words = 16 + 20, 16 // the event's kind, processor and time precede its ids
	if len(b) < headers+words+8 {
		return e, false
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	e.kind = word(headers)
	ids := headers + words
	switch {
	case e.kind == eventExec:
		e.pid = word(ids + 4)
		return e, true
	case e.kind == eventFork && len(b) >= ids+16:
		e.parent, e.pid = word(ids+4), word(ids+12)
		return e, word(ids+8) == e.pid
	}
	return e, false
}

// processTree knows which processes belong to which group (a node, or the operator's side), because their parents do.
// It counts the processes and programs that each group starts.
type processTree struct {
	group map[uint32]int // by process
	count []treeCount    // by group
}

type treeCount struct{ processes, programs int }

func newProcessTree(groups int) *processTree {
	return &processTree{group: map[uint32]int{}, count: make([]treeCount, groups)}
}

// add makes the process a member of the group.
func (t *processTree) add(pid uint32, group int) { t.group[pid] = group }

// remove removes the process, but not its descendants, from its group.
func (t *processTree) remove(pid uint32) { delete(t.group, pid) }

// handle counts an event.
func (t *processTree) handle(e processEvent) {
	switch e.kind {
	case eventFork:
		group, ok := t.group[e.parent]
		if !ok {
			delete(t.group, e.pid) // the id of a process that has ended
			return
		}
		t.group[e.pid] = group
		t.count[group].processes++
	case eventExec:
		if group, ok := t.group[e.pid]; ok {
			t.count[group].programs++
		}
	}
}

func (t *processTree) counts() []treeCount { return slices.Clone(t.count) }
