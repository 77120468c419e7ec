package deployments

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// message returns a message of the process connector.
func message(kind uint32, ids ...uint32) []byte {
	b := make([]byte, 16+20)
	for _, word := range append([]uint32{kind, 3, 0, 0}, ids...) {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	return b
}

func TestParseEvent(t *testing.T) {
	for _, c := range []struct {
		name    string
		message []byte
		want    processEvent
		ok      bool
	}{
		{"fork", message(eventFork, 11, 10, 20, 20), processEvent{eventFork, 10, 20}, true},
		{"new thread", message(eventFork, 11, 10, 21, 20), processEvent{eventFork, 10, 20}, false},
		{"exec", message(eventExec, 21, 20, 0, 0), processEvent{eventExec, 0, 20}, true},
		{"exit", message(0x80000000, 20, 20, 0, 17), processEvent{kind: 0x80000000}, false},
		{"acknowledgement", message(0, 0), processEvent{}, false},
		{"too short", message(eventExec, 21), processEvent{}, false},
		{"half a fork", message(eventFork, 11, 10, 20), processEvent{kind: eventFork}, false},
		{"nothing", nil, processEvent{}, false},
	} {
		if got, ok := parseEvent(c.message); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// A process belongs to the group of its parent, also when its id was that of a process of another group.
func TestProcessTree(t *testing.T) {
	tree := newProcessTree(3)
	tree.add(10, 0)
	tree.add(20, 1)
	for _, e := range []processEvent{
		{eventFork, 10, 11}, {eventExec, 0, 11}, {eventFork, 11, 12}, // a program and a subshell of the first group
		{eventFork, 20, 21}, {eventExec, 0, 21}, {eventExec, 0, 21}, // a program that starts another one in its place
		{eventFork, 1, 11}, {eventExec, 0, 11}, // 11 has ended, and is the id of a process of no group
		{eventFork, 10, 21}, {eventExec, 0, 21}, // 21 has ended, and is the id of a process of the first group
	} {
		tree.handle(e)
	}
	if diff := cmp.Diff([]treeCount{{3, 2}, {1, 2}, {0, 0}}, tree.counts(), cmp.AllowUnexported(treeCount{})); diff != "" {
		t.Error(diff)
	}
	tree.remove(10)
	tree.handle(processEvent{eventFork, 10, 13})
	tree.handle(processEvent{eventExec, 0, 12})
	if got := tree.counts()[0]; got != (treeCount{3, 3}) {
		t.Errorf("after the removal of the parent: %+v", got)
	}
}
