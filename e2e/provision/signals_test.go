package provision

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// SIGINT and SIGTERM end the phases that create or remove machines within a second, or nixbench prints
// what it waits for. The next apply succeeds, and destroy leaves nothing.
func TestSignals(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	before := b.listObjects("lxc")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, at := range []struct {
			event, phase string
			later        time.Duration
			command      []string
		}{
			{"phase-start", "provision", 0, []string{"apply"}},
			{"phase-start", "provision", 100 * time.Millisecond, []string{"apply"}},
			{"phase-start", "image", 0, []string{"apply"}},
			{"node-start", "boot", 0, []string{"apply"}},
			{"node-start", "boot", 300 * time.Millisecond, []string{"apply"}},
			{"node-start", "remove", 0, []string{"destroy", "--yes"}},
			{"node-start", "remove", 100 * time.Millisecond, []string{"destroy", "--yes"}},
		} {
			if at.command[0] == "destroy" {
				b.run(0, "apply")
			}
			code, took, output := b.signalAt(signal, at.event, at.phase, at.later, at.command...)
			t.Logf("%v %v after %s of %s: exit %d after %v", signal, at.later, at.event, at.phase, code, took)
			switch {
			case code == -1:
				t.Errorf("the run had no event %s of %s, so no signal was sent", at.event, at.phase)
			case code != 130 && code != 0:
				t.Errorf("exit %d:\n%s", code, output)
			case took > time.Second && !strings.Contains(output, "interrupted; waiting for "):
				t.Errorf("nixbench ended %v after the signal, and did not print what it waited for:\n%s", took, output)
			}
			if at.command[0] == "apply" {
				_, stderr := b.run(0, "apply")
				if got := results(stderr); len(got) != 2 || slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "failed") }) {
					t.Errorf("%q", got)
				}
			}
			b.run(0, "destroy", "--yes")
			b.want("left", b.listObjects("lxc"), before)
		}
	}
}

// signalAt runs nixbench and sends it a signal some time after the first event of this kind and phase.
// The code is -1 if there is no such event.
func (b *bareHypervisor) signalAt(s syscall.Signal, kind, phase string, later time.Duration, args ...string) (code int, took time.Duration, output string) {
	b.t.Helper()
	cmd := b.l.Command(b.t.Context(), program, append([]string{"--json", "-f", filepath.Join(b.dir, "hive.nix")}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var all bytes.Buffer
	var begun time.Time
	for lines := bufio.NewScanner(out); lines.Scan(); {
		all.Write(append(lines.Bytes(), '\n'))
		var e struct{ Event, Phase string }
		if begun.IsZero() && json.Unmarshal(lines.Bytes(), &e) == nil && e.Event == kind && e.Phase == phase {
			time.Sleep(later)
			begun = time.Now()
			if err := cmd.Process.Signal(s); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if begun.IsZero() {
		return -1, 0, all.String()
	}
	return cmd.ProcessState.ExitCode(), time.Since(begun).Round(time.Millisecond), all.String()
}
