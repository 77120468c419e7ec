package remote

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestMarks cuts a stream at every place: no cut may hide a mark or let a part
// of one through.
func TestMarks(t *testing.T) {
	const prefix = "nixbench-XYZ-"
	in := "motd\nnixbench-XY" + prefix + "pid:12\nlecture " + prefix + "pass:" + prefix + "pxx " + prefix + "pid:\n" +
		prefix + "pass:Sorry\n" + prefix + "run:345\nerr\n" + prefix + "pass:" + prefix[:5]
	want := "motd\nnixbench-XYlecture " + prefix + "pxx " + prefix + "pid:\nSorry\nerr\n" + prefix + "pass:" + prefix[:5]
	wantSeen := []string{"pid12", "pass:", "pass:", "run345"}
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		var seen []string
		m := newMarkWriter(prefix, func(kind, pid string) { seen = append(seen, kind+pid) }, &out, &out)
		for rest := []byte(in); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := m.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatal(n, err)
			}
		}
		m.flush()
		if out.String() != want || !slices.Equal(seen, wantSeen) {
			t.Fatalf("pieces of %d: %q, %q", size, &out, seen)
		}
	}
}

// No stream of a node makes the marks panic, and a stream without marks does not change.
func FuzzMarks(f *testing.F) {
	const prefix = "nixbench-XYZ-"
	f.Add([]byte(prefix+"pid:1\n"+prefix+"pid:2\n"+prefix+"pass:"+prefix+"run:3\n"+prefix+"run:4\nout"), 7)
	f.Add([]byte(prefix+"run:3\n"+prefix+"pid:1\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		size = max(1, size)
		var out bytes.Buffer
		r := &runningCommand{started: make(chan struct{}), leader: make(chan struct{}), prompts: make(chan struct{}, 8)}
		m := newMarkWriter(prefix, r.handleMark, &out, &out)
		for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := m.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatal(n, err)
			}
		}
		m.flush()
		if out.Len() > len(in) || r.first == "" && r.second == "" && len(r.prompts) == 0 && !bytes.Equal(out.Bytes(), in) {
			t.Errorf("%q became %q", in, out.Bytes())
		}
	})
}

func TestTail(t *testing.T) {
	for _, size := range []int{1, 3, 10, 11, 50} {
		tail := newTail(10)
		for rest := strings.Repeat("0123456789", 5); rest != ""; {
			n := min(size, len(rest))
			io.WriteString(tail, rest[:n])
			rest = rest[n:]
		}
		if tail.String() != "…0123456789" {
			t.Errorf("pieces of %d: %q", size, tail)
		}
	}
	tail := newTail(10)
	io.WriteString(tail, "short")
	if tail.String() != "short" {
		t.Errorf("%q", tail)
	}
}
