package provision

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Two virtual machines from one image: emulated, so that it takes a while.
func TestVirtualMachines(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "vm")
	b := newBench(t, fmt.Sprintf(`{
    count = 2; vcpus = 1; memory = "512M"; disk = "4G"; image = "%s";
    modules = [ { environment.etc."version".text = "one"; } ];
  }`, image))
	before := b.things("qemu")
	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
	explained, _ := b.run(0, "explain")
	t.Log(explained)
	first := b.boots()
	_, stderr = b.run(0, "apply")
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})

	b.hive(strings.Replace(b.role(), `"one"`, `"two"`, 1))
	_, stderr = b.run(0, "apply")
	b.want("another system", results(stderr), []string{"w-1 generation", "w-2 generation"})
	b.run(0, "reboot", "--on", "w-1", "--timeout", "3m")
	second := b.boots()
	if second["w-1"] == first["w-1"] || second["w-2"] != first["w-2"] {
		t.Errorf("boots: %v, then %v", first, second)
	}
	b.run(0, "rollback", "--yes")
	out, _ := b.run(0, "exec", "--", "cat", "/etc/version")
	if strings.Count(out, "one") != 2 {
		t.Errorf("after the rollback: %s", out)
	}
	b.run(0, "destroy", "--yes")
	b.want("left", b.things("qemu"), before)
}
