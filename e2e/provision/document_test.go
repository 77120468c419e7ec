package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/e2e/transcript"
)

// The shell commands in docs/provisioning.md.
func TestDocument(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	b := newBareHypervisor(t, fmt.Sprintf(`{ }; roles.worker = { count = 2; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init"; }; roles.w.count = 0`, lab.Image(t, "container")))
	shell := &transcript.Shell{TB: t, Dir: b.dir, Command: b.l.Command,
		Env: append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))}
	done := 0
	for _, step := range transcript.Read(t, "../../docs/provisioning.md") {
		command, comment, _ := strings.Cut(step.Command, "#")
		if strings.Contains(comment, "asks, then") { // without a terminal, the question requires --yes
			step.Command = command + " --yes"
		}
		if strings.HasPrefix(step.Command, "nixbench ") {
			shell.Do(step)
			done++
		}
	}
	if done == 0 {
		t.Error("the document has no commands of nixbench")
	}
	b.want("left", b.listObjects("lxc"), nil)
}
