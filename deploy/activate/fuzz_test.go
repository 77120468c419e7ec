package activate

import (
	"encoding/json"
	"strings"
	"testing"
)

// Any output of a node is parsed without a panic, and the result can be recorded as JSON.
func FuzzNodeOutput(f *testing.F) {
	f.Add("nixos=yes\ncurrent=/nix/store/a\ngeneration=/nix/var/nix/profiles/system-1-link 1700000000 /nix/store/a 25.05\nrun-run=r\nrun-left=9\nrun-broken=a b\nend=yes\n")
	f.Add("generation=system-99999999999999999999-link -1 x\nrun-run=r\nrun-time=99999999999999\nuptime=-9223372036854775808\nend=yes")
	f.Add("would stop the following units: a, b\n=\n\xff=\x00\nkernel-booted=\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := newNodeParser()
		for line := range strings.Lines(text) {
			p.handleLine(strings.TrimSuffix(line, "\n"))
		}
		n, err := p.finishNode()
		if err != nil {
			return
		}
		if _, err := json.Marshal(n); err != nil {
			t.Error(err)
		}
		n.HasReached(Switch, "/nix/store/a", "/nix/store/a")
		_ = n.fingerprint()
		w := &watch{node: n, name: "web-1"}
		_, _ = w.evaluate(Request{Goal: Switch, Path: "/nix/store/a"}, Result{})
	})
}
