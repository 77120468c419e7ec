package provision

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// If a machine does not boot, the error shows the end of its console log.
func TestConsoleOfFailure(t *testing.T) {
	t.Parallel()
	emulate(t)
	good, bad := lab.Image(t, "vm"), filepath.Join(t.TempDir(), "image")
	script := `mkdir -p "$2/bin" && cp -a --reflink=auto "$1/." "$2" && rm "$2/initrd"
cp "$(command -v busybox)" "$2/bin/busybox"
printf '#!/bin/busybox sh\necho "where is my root?"\nexit 1\n' > "$2/init" && chmod +x "$2/init"
cd "$2" && find init bin | busybox cpio -o -H newc > initrd && rm -r init bin`
	b := newBareHypervisor(t, fmt.Sprintf(`{
    count = 1; vcpus = 1; memory = "512M"; disk = "4G"; image = "%s";
  }`, bad))
	runOnHost(t, b.l, "sh", "-ec", script, "sh", good, bad)
	before := b.listObjects("qemu")
	_, stderr := b.run(5, "apply", "--timeout", "boot=20s")
	for _, want := range []string{"w-1: its machine was started, but is not ready after 20s", "its console ends with:", "where is my root?", "Attempted to kill init", "hint: the next apply continues to wait"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q", want)
		}
	}
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("qemu"), before)
}

// If the init of a container ends at once, the error reports that the container is off, and the run does not wait until the time limit.
func TestContainerThatEnds(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 1)
	before := b.listObjects("lxc")
	b.writeHive(strings.Replace(b.readRole(), `init = "/usr/sbin/lab-init"`, `init = "/usr/bin/true" /* not lab-init */`, 1))
	began := time.Now()
	_, stderr := b.run(5, "apply")
	for _, want := range []string{"it is off: its system has shut down during the boot", "nixbench console w-1"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q", want)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the run has waited for %v", took)
	}
	// After the init is corrected, the machine is started again with its disk.
	b.writeHive(strings.Replace(b.readRole(), `"/usr/bin/true" /* not lab-init */`, `"/usr/sbin/lab-init"`, 1))
	_, stderr = b.run(0, "apply")
	b.want("corrected", results(stderr), []string{"w-1 generation"})
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("lxc"), before)
}
