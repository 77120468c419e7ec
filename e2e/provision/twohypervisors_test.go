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

// labPID returns the number of a process in the namespaces of a lab.
func labPID(t *testing.T, l *lab.Lab) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.Dir, "world.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(text), " ")
	return pid
}

// Two hypervisors, each with its own libvirtd and network namespace. A cable connects a bridge of each,
// so all machines are on one network. Then one hypervisor is lost permanently.
func TestTwoHypervisors(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 4)
	other := lab.Hypervisor(t)
	addBridge(t, b.l, "br-office")
	runOnHost(t, b.l, "sh", "-ec", "ip link add rack1 type veth peer name rack2 netns "+labPID(t, other)+"; ip link set rack1 master br-office; ip link set rack1 up")
	runOnHost(t, other, "sh", "-ec", "ip link add br-office type bridge forward_delay 0; ip link set br-office up; ip link set rack2 master br-office; ip link set rack2 up")
	role := b.readRole()
	b.nix = fmt.Sprintf(`cluster.network.mode = "bridge"; cluster.network.bridge = "br-office";
  cluster.hypervisors.other = { uri = "%s"; poolPath = "%s"; };`, other.URIs["lxc"], other.PoolPath)
	b.writeHive(role)
	machines := func() (here, there int) {
		return len(strings.Fields(b.l.Virsh(t, "-c", b.l.URIs["lxc"], "list --name"))), len(strings.Fields(other.Virsh(t, "-c", other.URIs["lxc"], "list --name")))
	}

	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation", "w-3 generation", "w-4 generation"})
	if here, there := machines(); here != 2 || there != 2 {
		t.Errorf("%d machines are on one hypervisor, %d on the other", here, there)
	}
	out, _ := b.run(0, "facts", "--json")
	addresses := strings.Fields(runOnHost(t, b.l, "sh", "-c", `echo "$0" | grep -o '192\.168\.78\.[0-9]*' | sort -u`, out))
	if len(addresses) != 4 {
		t.Errorf("addresses: %q", addresses)
	}
	for _, a := range addresses { // all machines reach each other
		b.run(0, "exec", "--", "ping", "-c", "1", "-W", "2", a)
	}
	_, stderr = b.run(0, "apply")
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 unchanged", "w-4 unchanged"})
	_, stderr = b.run(0, "apply", "--set", "roles.w.count=2", "--yes")
	b.want("down", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 removed", "w-4 removed"})
	if here, there := machines(); here != 1 || there != 1 {
		t.Errorf("%d machines are on one hypervisor, %d on the other", here, there)
	}

	// One of the two is lost permanently: its machine is off, and its libvirt does not answer.
	lost := strings.TrimPrefix(other.Virsh(t, "-c", other.URIs["lxc"], "list --name"), "demo-")
	other.Virsh(t, "-c", other.URIs["lxc"], "destroy demo-"+lost)
	socket := filepath.Join(other.Dir, "libvirt", "libvirt-sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	role = strings.Replace(role, "count = 4", "count = 2", 1)
	b.writeHive(role)
	_, stderr = b.run(5, "apply")
	if !strings.Contains(stderr, "hypervisor other") || !strings.Contains(stderr, "if it is permanently lost, remove it from cluster.hypervisors, then: nixbench destroy --forget-hypervisor other") {
		t.Error("the error does not show how to remove the hypervisor from the cluster")
	}
	b.run(2, "destroy", "--yes", "--forget-hypervisor", "other") // the hive still names it
	b.nix, _, _ = strings.Cut(b.nix, "cluster.hypervisors.other")
	b.writeHive(role)
	_, stderr = b.run(2, "destroy", "--forget-hypervisor", "other")
	if !strings.Contains(stderr, lost+" on other: its address 192.168.78.") || !strings.Contains(stderr, "--yes") {
		t.Error("forgetting a hypervisor needs no confirmation")
	}
	out, stderr = b.run(0, "destroy", "--yes", "--forget-hypervisor", "other")
	if !slices.Contains(results(stderr), lost+" forgotten") || !strings.Contains(stderr, "1 forgotten") {
		t.Errorf("the machine is not forgotten: %s", stderr)
	}
	if !strings.Contains(out, "left on other, at "+other.URIs["lxc"]+": the machines, their disks and keys") {
		t.Errorf("the output does not list the objects left on the hypervisor: %s", out)
	}
	_, stderr = b.run(0, "apply")
	b.want("elsewhere", results(stderr), slices.Sorted(slices.Values([]string{lost + " generation", map[string]string{"w-1": "w-2", "w-2": "w-1"}[lost] + " unchanged"})))
	if len(b.bootIDs()) != 2 {
		t.Error("not both nodes answer")
	}
	b.run(0, "destroy", "--yes")
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	if here, there := machines(); here != 0 || there != 0 {
		t.Errorf("%d machines are left on one hypervisor, %d on the other", here, there)
	}
}
