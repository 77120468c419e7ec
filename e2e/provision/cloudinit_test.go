package provision

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A virtual machine gets its name and keys from cloud-init. Its bridge has a DHCP server that is not
// libvirt's, so nixbench gets its address from the guest agent.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	emulate(t)
	image := lab.Image(t, "vm", "--cloud-init")
	b := newBareHypervisor(t, fmt.Sprintf(`{
    count = 1; vcpus = 1; memory = "512M"; disk = "4G"; image = "%s"; identity = "cloud-init";
  }`, image))
	role := b.readRole()
	b.nix = `cluster.network.mode = "bridge"; cluster.network.bridge = "br-office";`
	b.writeHive(role)
	addBridge(t, b.l, "br-office")
	before := b.listObjects("qemu")
	b.run(0, "apply", "boot", "--confirm-timeout=5m")
	out, _ := b.run(0, "ssh", "w-1", "--", "hostname; ls -A /run/credentials/@system /sys/firmware/qemu_fw_cfg/by_name/opt; cloud-init status; cat /var/lib/nixbench/node.json")
	if !strings.HasPrefix(out, "w-1\n") || !strings.Contains(out, "status: done") || !strings.Contains(out, `"name":"w-1"`) || strings.Contains(out, "tmpfiles.extra") {
		t.Errorf("the machine's name, credentials and state of cloud-init are %s", out)
	}
	if out := b.l.Virsh(t, "-c", b.l.URI("qemu"), "domifaddr demo-w-1 --source agent"); !strings.Contains(out, "192.168.78.1") {
		t.Errorf("the guest agent reports %s", out)
	}
	if seed, err := filepath.Glob(filepath.Join(b.l.PoolPath(), "*.cidata")); len(seed) != 1 {
		t.Errorf("seeds: %q, %v", seed, err)
	}
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("qemu"), before)
}
