package activate

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// A node that prints beats for ever is left after a total time.
func TestEndlessBeats(t *testing.T) {
	f := newFakeNode()
	ended := make(chan struct{})
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		for {
			select {
			case <-ended:
				return 1
			case <-time.After(50 * time.Millisecond):
				io.WriteString(e.Stdout, "beat=\n")
			}
		}
	}
	_, h := fake(t, f)
	begin := time.Now()
	_, err := (&Activator{maxRun: time.Second}).Activate(t.Context(), "web-1", h, request())
	close(ended)
	var lost *LostSightError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "follows a run") || time.Since(begin) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// A line that is too long is cut. It is counted once, and its rest is not parsed as a name=value line of the script.
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
	if res.Outcome != Committed || len(res.Log) != 3 {
		t.Errorf("outcome %s, %d lines", res.Outcome, len(res.Log))
	}
	for _, line := range res.Log {
		if len(line) > most {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if got := strings.ReplaceAll(rec.log(), "\n", ""); got != "before"+long[:most-len("log=")]+"after" {
		t.Errorf("of %d bytes, %d have come", len(long), len(got))
	}
}
