package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// worldOf is a process in the namespaces of a lab.
func worldOf(t *testing.T, l *lab.Lab) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.Dir, "world.pid"))
	if err != nil {
		t.Fatal(err)
	}
	world, _, _ := strings.Cut(string(text), " ")
	return world
}

// Two hypervisors, each with a libvirtd and a kernel's network of its own, and a bridge of
// each that a cable joins: the machines are on one network.
func TestTwoHypervisors(t *testing.T) {
	t.Parallel()
	b := containers(t, 4)
	other := lab.Hypervisor(t)
	ownBridge(t, b.l, "br-office")
	in(t, b.l, "sh", "-ec", "ip link add rack1 type veth peer name rack2 netns "+worldOf(t, other)+"; ip link set rack1 master br-office; ip link set rack1 up")
	in(t, other, "sh", "-ec", "ip link add br-office type bridge forward_delay 0; ip link set br-office up; ip link set rack2 master br-office; ip link set rack2 up")
	role := b.role()
	b.nix = fmt.Sprintf(`cluster.network.mode = "bridge"; cluster.network.bridge = "br-office";
  cluster.hypervisors.other = { uri = "%s"; poolPath = "%s"; };`, other.URI("lxc"), other.PoolPath())
	b.hive(role)
	machines := func() (here, there int) {
		return len(strings.Fields(b.l.Virsh(t, "-c", b.l.URI("lxc"), "list --name"))), len(strings.Fields(other.Virsh(t, "-c", other.URI("lxc"), "list --name")))
	}

	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation", "w-3 generation", "w-4 generation"})
	if here, there := machines(); here != 2 || there != 2 {
		t.Errorf("%d machines are on one hypervisor, %d on the other", here, there)
	}
	out, _ := b.run(0, "facts", "--json")
	addresses := strings.Fields(in(t, b.l, "sh", "-c", `echo "$0" | grep -o '192\.168\.78\.[0-9]*' | sort -u`, out))
	if len(addresses) != 4 {
		t.Errorf("addresses: %q", addresses)
	}
	for _, a := range addresses { // each sees each, wherever it is
		b.run(0, "exec", "--", "ping", "-c", "1", "-W", "2", a)
	}
	_, stderr = b.run(0, "apply")
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 unchanged", "w-4 unchanged"})
	_, stderr = b.run(0, "apply", "--set", "roles.w.count=2", "--yes")
	b.want("down", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 removed", "w-4 removed"})
	if here, there := machines(); here != 1 || there != 1 {
		t.Errorf("%d machines are on one hypervisor, %d on the other", here, there)
	}

	// One of the two is gone for good: it has lost its power, and its libvirt does not answer.
	lost := strings.TrimPrefix(other.Virsh(t, "-c", other.URI("lxc"), "list --name"), "demo-")
	other.Virsh(t, "-c", other.URI("lxc"), "destroy demo-"+lost)
	socket := filepath.Join(other.Dir, "libvirt", "libvirt-sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	role = strings.Replace(role, "count = 4", "count = 2", 1)
	b.hive(role)
	_, stderr = b.run(5, "apply")
	if !strings.Contains(stderr, "hypervisor other") || !strings.Contains(stderr, "if it is permanently lost, remove it from cluster.hypervisors, then: nixbench destroy --forget-hypervisor other") {
		t.Error("no way out is shown")
	}
	b.run(2, "destroy", "--yes", "--forget-hypervisor", "other") // the hive still names it
	b.nix, _, _ = strings.Cut(b.nix, "cluster.hypervisors.other")
	b.hive(role)
	_, stderr = b.run(2, "destroy", "--forget-hypervisor", "other")
	if !strings.Contains(stderr, lost+" on other: its address 192.168.78.") || !strings.Contains(stderr, "--yes") {
		t.Error("nobody was asked")
	}
	out, stderr = b.run(0, "destroy", "--yes", "--forget-hypervisor", "other")
	if !slices.Contains(results(stderr), lost+" forgotten") || !strings.Contains(stderr, "1 machine forgotten") {
		t.Errorf("it is not forgotten: %s", stderr)
	}
	if !strings.Contains(out, "left on other, at "+other.URI("lxc")+": demo-"+lost+", with their disks in pool nixbench") {
		t.Errorf("what is left there: %s", out)
	}
	_, stderr = b.run(0, "apply")
	b.want("elsewhere", results(stderr), slices.Sorted(slices.Values([]string{lost + " generation", map[string]string{"w-1": "w-2", "w-2": "w-1"}[lost] + " unchanged"})))
	if len(b.boots()) != 2 {
		t.Error("not both answer")
	}
	b.run(0, "destroy", "--yes")
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	if here, there := machines(); here != 0 || there != 0 {
		t.Errorf("%d machines are left on one hypervisor, %d on the other", here, there)
	}
}
