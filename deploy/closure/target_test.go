package closure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// A build may print megabytes without a line's end.
func TestLongLinesOfABuildOnTheNode(t *testing.T) {
	const drv = "/nix/store/00000000000000000000000000000000-hello.drv"
	longer := strings.Repeat("é", 80<<10) // 160 KiB
	f := newFakes(t, 1)
	f.there.SetValid(f.closure[0])
	f.remote = func(e *sshtest.Exec) (int, bool) {
		if e.Argv[0] != "env" {
			return 0, false
		}
		say := func(fields map[string]any) {
			data, err := json.Marshal(fields)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(e.Stderr, "@nix %s\n", data)
		}
		say(map[string]any{"action": "start", "id": 1, "type": 105, "fields": []any{drv}})
		for _, line := range []string{"short", longer, strings.Repeat("z", 3<<20), "last"} {
			say(map[string]any{"action": "result", "id": 1, "type": 101, "fields": []any{line}})
		}
		fmt.Fprintln(e.Stderr, strings.Repeat("w", 2<<20))
		fmt.Fprintln(e.Stderr, strings.Repeat("v", 200<<10))
		say(map[string]any{"action": "msg", "level": 0, "msg": "error: no", "raw_msg": "builder for '" + drv + "' failed"})
		return 1, true
	}
	_, h, c, seen := f.node(sshtest.Options{})
	err := c.BuildOnTarget(t.Context(), "web-1", h, f.system()[0], "", "")
	var failed *nixeval.BuildError
	if !errors.As(err, &failed) || len(failed.Failures) != 1 || failed.Failures[0].Drv != drv {
		t.Fatalf("%T %.200s", err, err)
	}
	var text strings.Builder
	for _, e := range seen.of(event.NodeLog) {
		if len(e.Text) > 64<<10 {
			t.Errorf("an event of %d bytes", len(e.Text))
		}
		text.WriteString(e.Text)
	}
	if want := "short" + longer[:64<<10] + "last"; text.String() != want {
		t.Errorf("the log has %d bytes", text.Len())
	}
	if n := len(fmt.Sprint(err)); n > 300<<10 {
		t.Errorf("the error has %d bytes", n)
	}
}
