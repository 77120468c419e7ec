package provision

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// runOnHost runs a command on the hypervisor, which is this host with the lab's network.
func runOnHost(t *testing.T, l *lab.Lab, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := l.Command(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// startOnHost starts a command on the hypervisor, and ends it after the test.
func startOnHost(t *testing.T, l *lab.Lab, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := l.Command(ctx, argv[0], argv[1:]...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%s", argv[0], output.String())
		}
	})
	return cmd
}

// addBridge creates a bridge on the hypervisor, with a DHCP server that is not libvirt's.
func addBridge(t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	runOnHost(t, l, "ip", "link", "add", name, "type", "bridge", "forward_delay", "0")
	runOnHost(t, l, "ip", "address", "add", "192.168.78.1/24", "dev", name)
	runOnHost(t, l, "ip", "link", "set", name, "up")
	startOnHost(t, l, "dnsmasq", "--keep-in-foreground", "--log-dhcp", "--log-facility=-", "--conf-file=/dev/null", "--no-ping", "--port=0",
		"--user=root", "--pid-file=", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"),
		"--bind-interfaces", "--interface="+name, "--dhcp-range=192.168.78.100,192.168.78.200,1h")
}

// Machines on a bridge of the hypervisor, for which libvirt has no network and no leases.
func TestBridge(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	addBridge(t, b.l, "br-office")
	before := b.listObjects("lxc")
	set := []string{"--set", "cluster.network.mode=bridge", "--set", "cluster.network.bridge=br-office"}
	nixbench := func(code int, args ...string) (string, string) { return b.run(code, append(args, set...)...) }
	_, stderr := nixbench(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
	out, _ := nixbench(0, "facts")
	if strings.Count(out, "192.168.78.1") != 2 {
		t.Errorf("facts: %s", out)
	}
	_, stderr = nixbench(0, "apply")
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	nixbench(0, "destroy", "--yes")
	b.want("left", b.listObjects("lxc"), before)
	if out := runOnHost(t, b.l, "ip", "-brief", "address", "show", "dev", "br-office"); !strings.Contains(out, "192.168.78.1/24") {
		t.Errorf("destroy has changed the bridge: %q", out)
	}
}

const lan = `<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>lan</name><bridge name='virlan' stp='off' delay='0'/>
  <ip address='192.168.77.1' netmask='255.255.255.0'><dhcp><range start='192.168.77.100' end='192.168.77.200'/></dhcp></ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>`

// Machines on a network that nixbench has not created: the facts have their addresses, and destroy
// keeps the network.
func TestExistingNetwork(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	file := filepath.Join(b.l.PoolPath, "lan.xml")
	if err := os.WriteFile(file, []byte(lan), 0o644); err != nil {
		t.Fatal(err)
	}
	b.l.Virsh(t, "-c", b.l.URIs["lxc"], "net-define "+file+"; net-start lan")
	before := b.listObjects("lxc")
	set := []string{"--set", "cluster.network.name=lan", "--set", "cluster.network.mode=existing"}
	_, stderr := b.run(0, append([]string{"apply"}, set...)...)
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
	out, _ := b.run(0, append([]string{"facts"}, set...)...)
	if strings.Count(out, "192.168.77.") != 2 {
		t.Errorf("facts: %s", out)
	}
	t.Log(out)
	_, stderr = b.run(0, append([]string{"apply"}, set...)...)
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	// If the hive's network changes, apply fails instead of moving machines.
	_, stderr = b.run(5, "apply")
	if !strings.Contains(stderr, "on network lan (existing") {
		t.Error(stderr)
	}
	b.run(0, append([]string{"destroy", "--yes"}, set...)...)
	b.want("left", b.listObjects("lxc"), before)
}
