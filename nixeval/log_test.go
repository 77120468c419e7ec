package nixeval

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// buildLog is the output of Nix 2.8 and 2.26 for a build that succeeds and one that fails.
const buildLog = `@nix {"action":"start","id":1,"level":0,"text":"","type":104}
@nix {"action":"start","fields":["/nix/store/aaa-good.drv","",1,1],"id":2,"level":3,"text":"building '/nix/store/aaa-good.drv'","type":105}
@nix {"action":"start","fields":["/nix/store/bbb-bad.drv","",1,1],"id":3,"level":3,"text":"building '/nix/store/bbb-bad.drv'","type":105}
@nix {"action":"result","fields":["\u001b[1mhello\u001b[0m"],"id":2,"type":101}
@nix {"action":"result","fields":["oh no"],"id":3,"type":101}
@nix {"action":"result","fields":[1,2,0,1],"id":1,"type":105}
@nix {"action":"result","fields":[1,2,1,0],"id":1,"type":105}
@nix {"action":"msg","column":null,"file":null,"level":0,"line":null,"msg":"\u001b[31;1merror:\u001b[0m builder for '\u001b[35;1m/nix/store/bbb-bad.drv\u001b[0m' failed with exit code 3","raw_msg":"builder for '\u001b[35;1m/nix/store/bbb-bad.drv\u001b[0m' failed with exit code 3"}
@nix {"action":"stop","id":3}
@nix {"action":"stop","id":2}
@nix {"action":"start","fields":["/nix/store/ccc-lib","https://cache","local"],"id":4,"level":3,"text":"","type":100}
@nix {"action":"stop","id":4}
@nix {"action":"msg","level":0,"msg":"trace: warning: old option"}
@nix {"action":"msg","level":0,"msg":"trace: just looking"}
@nix {"action":"msg","level":0,"msg":"\u001b[35;1mevaluation warning:\u001b[0m new style"}
@nix {"action":"msg","level":1,"msg":"\u001b[35;1mwarning:\u001b[0m Git tree is dirty"}
@nix {"action":"msg","level":0,"msg":"(use '--show-trace' to show detailed location information)"}
@nix {"action":"msg","level":3,"msg":"these 2 derivations will be built:"}
@nix not json
fatal: something else`

func TestLogBecomesEvents(t *testing.T) {
	var got []string
	l := &nixlog.Log{Phase: event.Build, Send: func(e event.Event) {
		line := fmt.Sprintf("%s %s%s%s", e.Kind, e.Path, e.Level, e.Text)
		if e.Failed {
			line += " failed"
		}
		if e.Kind == event.Progress {
			line += fmt.Sprintf("%d of %d", e.Done, e.Total)
		}
		got = append(got, line)
	}}
	for line := range strings.SplitSeq(buildLog, "\n") {
		l.HandleLine(line)
	}
	want := []string{
		"build-start /nix/store/aaa-good.drv",
		"build-start /nix/store/bbb-bad.drv",
		"build-log /nix/store/aaa-good.drvhello",
		"build-log /nix/store/bbb-bad.drvoh no",
		"progress 1 of 2",
		"build-end /nix/store/bbb-bad.drv failed",
		"build-end /nix/store/aaa-good.drv",
		"copy-start /nix/store/ccc-lib",
		"copy-end /nix/store/ccc-lib",
		"message warningold option",
		"message tracejust looking",
		"message warningnew style",
		"message warningGit tree is dirty",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	failures := BuildFailures(l)
	if len(failures) != 1 || failures[0].Drv != "/nix/store/bbb-bad.drv" {
		t.Fatalf("failures %+v", failures)
	}
	if want := "builder for '/nix/store/bbb-bad.drv' failed with exit code 3\nlast lines of its log:\n  oh no"; failures[0].Error() != want {
		t.Errorf("error %q, want %q", failures[0].Error(), want)
	}
	if diff := cmp.Diff([]string{"@nix not json", "fatal: something else"}, l.Plain); diff != "" {
		t.Error(diff)
	}
}

func TestLogTailsAreLimited(t *testing.T) {
	l := &nixlog.Log{}
	l.HandleLine(`@nix {"action":"start","fields":["/nix/store/a.drv"],"id":1,"type":105}`)
	for i := range 1000 {
		l.HandleLine(fmt.Sprintf(`@nix {"action":"result","fields":["line %d"],"id":1,"type":101}`, i))
		l.HandleLine(fmt.Sprintf("plain %d", i))
	}
	if got := l.Tail("/nix/store/a.drv"); len(got) != 20 || got[19] != "line 999" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	if got := l.Plain; len(got) != 20 || got[19] != "plain 999" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
}

// The log is read to its end for any output of a builder.
func FuzzLog(f *testing.F) {
	for line := range strings.SplitSeq(buildLog, "\n") {
		f.Add(line)
	}
	f.Add(`@nix {"action":"result","fields":{},"id":"x","type":101}`)
	f.Fuzz(func(t *testing.T, line string) {
		l := &nixlog.Log{Send: func(event.Event) {}}
		l.HandleLine(`@nix {"action":"start","fields":["/nix/store/a.drv"],"id":1,"type":105}`)
		l.HandleLine(line)
		l.HandleLine(line)
		for _, e := range l.Errors {
			ne := &NixError{Message: e}
			_, _ = ne.Error(), ne.Hint()
		}
	})
}
