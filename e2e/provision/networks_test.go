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

// in runs a command on the hypervisor, which is this host in the lab's network.
func in(t *testing.T, l *lab.Lab, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := l.Command(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// begin starts a command on the hypervisor, which ends with the test.
func begin(t *testing.T, l *lab.Lab, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := l.Command(ctx, argv[0], argv[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", argv[0], said.String())
		}
	})
	return cmd
}

// ownBridge makes a bridge of the hypervisor, and behind it somebody else's DHCP server.
func ownBridge(t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	in(t, l, "ip", "link", "add", name, "type", "bridge", "forward_delay", "0")
	in(t, l, "ip", "address", "add", "192.168.78.1/24", "dev", name)
	in(t, l, "ip", "link", "set", name, "up")
	begin(t, l, "dnsmasq", "--keep-in-foreground", "--log-dhcp", "--log-facility=-", "--conf-file=/dev/null", "--no-ping", "--port=0",
		"--user=root", "--pid-file=", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"),
		"--bind-interfaces", "--interface="+name, "--dhcp-range=192.168.78.100,192.168.78.200,1h")
}

// A bridge of the hypervisor: libvirt knows no network and no leases there.
func TestBridge(t *testing.T) {
	t.Parallel()
	b := containers(t, 2)
	ownBridge(t, b.l, "br-office")
	before := b.things("lxc")
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
	b.want("left", b.things("lxc"), before)
	if out := in(t, b.l, "ip", "-brief", "address", "show", "dev", "br-office"); !strings.Contains(out, "192.168.78.1/24") {
		t.Errorf("the bridge is now %q", out)
	}
}

const lan = `<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>lan</name><bridge name='virlan' stp='off' delay='0'/>
  <ip address='192.168.77.1' netmask='255.255.255.0'><dhcp><range start='192.168.77.100' end='192.168.77.200'/></dhcp></ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>`

// A network that is not ours: addresses are found out, the facts have them, and the
// network is still there afterwards.
func TestNetworkOfOthers(t *testing.T) {
	t.Parallel()
	b := containers(t, 2)
	file := filepath.Join(b.l.PoolPath(), "lan.xml")
	if err := os.WriteFile(file, []byte(lan), 0o644); err != nil {
		t.Fatal(err)
	}
	b.l.Virsh(t, "-c", b.l.URI("lxc"), "net-define "+file+"; net-start lan")
	before := b.things("lxc")
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
	// The hive has changed its mind about the network: no machine is moved in silence.
	_, stderr = b.run(5, "apply")
	if !strings.Contains(stderr, "on network lan (existing") {
		t.Error(stderr)
	}
	b.run(0, append([]string{"destroy", "--yes"}, set...)...)
	b.want("left", b.things("lxc"), before)
}
