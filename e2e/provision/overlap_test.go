package provision

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Machines boot while their systems are evaluated; this hive's evaluation is slow.
func TestOverlap(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	b := newBareHypervisor(t, fmt.Sprintf(`{
    count = 3; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ ({ runtime, ... }: {
      environment.etc."slow".text =
        let sum = n: builtins.foldl' builtins.add 0 (builtins.genList (x: x) n);
        in toString (if runtime == null then 0 else builtins.foldl' (s: _: s + sum 5000) 0 (builtins.genList (x: x) 5000));
    }) ];
  }`, image))
	b.run(0, "apply")
	explained, _ := b.run(0, "explain")
	t.Log(explained)
	out, _ := b.run(0, "explain", "--json")
	type span struct {
		Phase       string
		Start, Took float64
	}
	for line := range strings.Lines(out) {
		var r struct {
			Result *struct {
				Phases []span
				Nodes  []struct{ Spans []span }
			}
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Result == nil {
			continue
		}
		overlap := slices.ContainsFunc(r.Result.Phases, func(p span) bool {
			return p.Phase == "evaluate" && slices.ContainsFunc(r.Result.Nodes[0].Spans, func(s span) bool {
				return s.Phase == "boot" && s.Start < p.Start+p.Took && p.Start < s.Start+s.Took
			})
		})
		if !overlap {
			t.Errorf("no machine has booted during the evaluation: %+v", r.Result)
		}
	}
	b.run(0, "destroy", "--yes")
}
