package deploy

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// timedOutput is a writer that records each line with its time.
type timedOutput struct {
	mu    sync.Mutex
	lines []timedLine
	rest  string
}

type timedLine struct {
	at   time.Time
	text string
}

func (s *timedOutput) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.rest += string(p)
	for {
		line, rest, whole := strings.Cut(s.rest, "\n")
		if !whole {
			return len(p), nil
		}
		s.lines, s.rest = append(s.lines, timedLine{now, line}), rest
	}
}

// first returns the time of the first line after a time that contains all of the words.
func (s *timedOutput) first(after time.Time, words ...string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		all := l.at.After(after)
		for _, w := range words {
			all = all && strings.Contains(l.text, w)
		}
		if all {
			return l.at
		}
	}
	return time.Time{}
}

// silence returns the longest interval without a line between begin and end, and the line before it.
func (s *timedOutput) silence(begin, end time.Time) (time.Duration, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest, after, last, text := time.Duration(0), "", begin, ""
	for _, l := range append(s.lines[:len(s.lines):len(s.lines)], timedLine{at: end}) {
		if d := l.at.Sub(last); d > longest {
			longest, after = d, text
		}
		last, text = l.at, l.text
	}
	return longest, after
}

func (s *timedOutput) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.lines {
		fmt.Fprintf(&b, "%s  %s\n", l.at.Format("05.000"), l.text)
	}
	return b.String()
}

// lostWords are in each message that nixbench waits for an unreachable node to roll back.
const lostWords = "it rolls back unless confirmed"

// When a node's network fails permanently during its switch, nixbench reports the node within five
// seconds in every form of the output, and waits no longer than the node needs to roll back.
func TestPermanentlyUnreachable(t *testing.T) {
	t.Parallel()
	const (
		confirm = 15 * time.Second
		named   = 5 * time.Second
		most    = 2*confirm + 3*time.Second + 30*time.Second
		slack   = 2 * time.Second // for a busy machine
	)
	l := lab.Start(t, 3)
	// lost deploys a node, and writes a hive whose next deployment disables the node's network.
	lost := func(t *testing.T, node string) *sandbox {
		s := newSandbox(t, l)
		s.writeHive(node + ` = which "one";`)
		s.run(0, "apply")
		s.writeHive(node + ` = { imports = [ (which "lost") ]; systemd.services.cut = once "/usr/sbin/ip link set eth0 down"; };`)
		return s
	}
	check := func(t *testing.T, s *sandbox, out *timedOutput, ended time.Time, gap time.Duration, words ...string) {
		t.Helper()
		signs := s.findEvents(func(h runEvent) bool { return h.Event == "node-log" })
		if len(signs) == 0 {
			t.Fatalf("the switch did not begin\n%s", out)
		}
		last := signs[len(signs)-1].Time
		first := out.first(last, words...)
		silence, after := out.silence(last, ended)
		t.Logf("reported %v after the node's last line; at most %v without output, after %q; ended after %v",
			first.Sub(last).Round(time.Millisecond), silence.Round(time.Millisecond), after, ended.Sub(last).Round(time.Millisecond))
		// nixbench hears from the node every second, which is not always an event.
		if first.IsZero() || first.Sub(last) > named+time.Second+slack {
			t.Errorf("nixbench did not report in time what it waits for\n%s", out)
		}
		if silence > gap+slack {
			t.Errorf("%v without output\n%s", silence, out)
		}
		if took := ended.Sub(last); took > most+time.Second+slack {
			t.Errorf("it took %v, want at most %v", took, most)
		}
	}

	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		s, out := lost(t, "m1"), &timedOutput{}
		got := s.startTo(io.Discard, out, "apply", "--timeout", "confirm="+confirm.String()).end()
		if got.code != 8 {
			t.Errorf("exit %d", got.code)
		}
		s.says(got, "waiting   m1: activate: unreachable; "+lostWords, "at most", "could not confirm the switch")
		check(t, s, out, time.Now(), most/2, "waiting   m1: activate: ", lostWords)
	})
	t.Run("json", func(t *testing.T) {
		t.Parallel()
		s, out := lost(t, "m2"), &timedOutput{}
		got := s.startTo(out, io.Discard, "apply", "--json", "--timeout", "confirm="+confirm.String()).end()
		if got.code != 8 {
			t.Errorf("exit %d", got.code)
		}
		check(t, s, out, time.Now(), most/2, `"event":"wait"`, `"node":"m2"`, lostWords, `"since":`, `"until":`)
		if out.first(time.Time{}, `"event":"wait-end"`, `"node":"m2"`, lostWords).IsZero() {
			t.Errorf("the wait has no end\n%s", out)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		s, out := lost(t, "m3"), &timedOutput{}
		p := s.startOnTerminal("apply", "--timeout", "confirm="+confirm.String())
		for running := true; running; {
			select {
			case <-p.ended:
				running = false
			case <-time.After(100 * time.Millisecond):
				// Record each frame of the live view as a line.
				p.mu.Lock()
				fmt.Fprintln(out, strings.ReplaceAll(p.screen.String(), "\n", " "))
				p.screen.Reset()
				p.mu.Unlock()
			}
		}
		check(t, s, out, time.Now(), time.Second, "m3 activate ", "left: ", lostWords)
	})
}
