package provision

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// A machine whose domain was undefined keeps its disk, and apply asks before it replaces a disk that was removed. A command says within ten
// seconds that a machine is off.
func TestVanished(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	b.run(0, "apply")
	virsh := func(script string) { b.l.Virsh(t, "-c", b.l.URIs["lxc"], script) }
	want := func(what, text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not say %q:\n%s", what, part, text)
			}
		}
	}
	for _, node := range []string{"w-1", "w-2"} {
		b.run(0, "exec", "--on", node, "--", "echo data of "+node+" > /root/data; sync")
	}

	virsh("destroy demo-w-1; undefine demo-w-1")
	out, _ := b.run(0, "plan")
	want("plan", out, "start: its domain was removed from hypervisor default, and is defined again around its disk")
	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	out, _ = b.run(0, "exec", "--on", "w-1", "--", "cat", "/root/data")
	want("w-1", out, "data of w-1")

	begin := time.Now()
	powerOff := time.AfterFunc(5*time.Second, func() { virsh("destroy demo-w-2") })
	_, _, stderr, _ = b.try("exec", "--on", "w-2", "--", "sleep", "60")
	if took := time.Since(begin); took > 18*time.Second || powerOff.Stop() {
		t.Errorf("exec on a machine that is powered off meanwhile took %s", took)
	}
	want("exec", stderr, "lost the connection") // the machine's system may still close it
	begin = time.Now()
	_, stderr = b.run(6, "exec", "--on", "w-2", "--", "true")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("exec on a machine that is off took %s", took)
	}
	want("exec", stderr, "its machine is off", "nixbench start --on w-2")

	for _, script := range []string{"", "destroy demo-w-2; undefine demo-w-2; "} {
		root := regexp.MustCompile(`/[^'"]*/nb\.[0-9a-f]+`).FindString(b.l.Virsh(t, "-c", b.l.URIs["lxc"], "dumpxml --inactive demo-w-2"))
		virsh(script + "vol-delete " + root)
		out, _ = b.run(0, "plan")
		want("plan", out, "its disk is no longer on hypervisor default, so it is created again without its data")
		_, stderr = b.run(2, "apply")
		want("apply", stderr, "create w-2 on default: its disk is no longer on hypervisor default", "--yes")
		_, stderr = b.run(0, "apply", "--yes")
		b.want("apply", results(stderr), []string{"w-1 unchanged", "w-2 generation"})
	}
	b.run(0, "destroy", "--yes")
}
