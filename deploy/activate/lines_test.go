package activate

import (
	"io"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// A line that is too long arrives in pieces. It is counted once, and no piece is parsed as a
// name=value line of the script.
func TestLongLinesOfASwitch(t *testing.T) {
	const most = 64 << 10
	long := strings.Repeat("x", most-len("log=")) + "run-outcome=failed" + strings.Repeat("y", most)
	f := newFakeNode()
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		io.WriteString(e.Stdout, "beat=\nlog=before\nlog="+long+"\nlog=after\n")
		f.waits("r1")
		f.inspect(e.Stdout)
		return 0
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		f.became("r1")
		f.inspect(e.Stdout)
		return 0
	}
	_, h := fake(t, f)
	rec := &recorder{}
	res, err := (&Activator{Send: rec.add}).Activate(t.Context(), "web-1", h, request())
	if err != nil {
		t.Fatal(err)
	}
	if last := f.called[len(f.called)-1]; last != "confirm r1 3" {
		t.Errorf("the node is told %q", last)
	}
	if res.Outcome != Committed || len(res.Log) != 5 {
		t.Errorf("outcome %s, %d lines", res.Outcome, len(res.Log))
	}
	for _, line := range res.Log {
		if len(line) > most {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if got := strings.ReplaceAll(rec.log(), "\n", ""); got != "before"+long+"after" {
		t.Errorf("of %d bytes, %d have come", len(long), len(got))
	}
}
