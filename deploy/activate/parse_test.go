package activate

import (
	"strings"
	"testing"
)

// Whatever a node's record of a run contains, it is parsed and described.
func FuzzRunRecord(f *testing.F) {
	f.Add("nixos=yes\nrun-run=20260102T030405Z\nrun-goal=switch\nrun-phase=waiting\nrun-armed=60\nrun-left=9\nrun-alive=yes\nrun-broken=a.service b.service\nend=yes")
	f.Add("run-run=x\nrun-phase=done\nrun-outcome=rolled-back\nrun-reason=late\nrun-code=4\nrun-time=99999999999999999999\nlink=system-x-link\ngeneration=system-1-link 1 /x\nend=yes")
	f.Fuzz(func(t *testing.T, output string) {
		p := newNodeParser()
		for line := range strings.Lines(output) {
			p.handleLine(strings.TrimSuffix(line, "\n"))
		}
		n, err := p.finishNode()
		if err != nil || n.Last == nil {
			return
		}
		if n.Last.Remaining < 0 || n.Last.Alive && n.Last.String() == "" {
			t.Errorf("%+v", n.Last)
		}
	})
}
