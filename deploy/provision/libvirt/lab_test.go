package libvirt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/provisiontest"
	"github.com/nixbench/nixbench/e2e/lab"
)

// uriOf is the lab's libvirtd with the wanted driver.
func uriOf(l *lab.Lab, driver string) string {
	return driver + "+unix:///system?socket=" + filepath.Join(l.Dir, "libvirt", "libvirt-sock")
}

var pools atomic.Int32

// inLab is a hypervisor of the lab with nothing of a cluster on it; what a test leaves
// there goes with the test.
func inLab(t *testing.T, l *lab.Lab, driver string) *provisiontest.Host {
	t.Helper()
	o := Options{URI: uriOf(l, driver), Pool: "nixbench", PoolPath: filepath.Join(l.Dir, fmt.Sprintf("pool%d", pools.Add(1)))}
	h := hypervisorAt(t, o)
	t.Cleanup(func() { purge(t, o.URI, l.Network) })
	return h
}

// purge removes all but one network.
func purge(t *testing.T, uri, keep string) {
	t.Helper()
	c, err := libvirt.NewConnect(uri)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	domains, _ := c.ListAllDomains(0)
	for i := range domains {
		_ = domains[i].Destroy()
		if domains[i].UndefineFlags(libvirt.DOMAIN_UNDEFINE_NVRAM|libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE) != nil {
			_ = domains[i].Undefine()
		}
	}
	networks, _ := c.ListAllNetworks(0)
	for i := range networks {
		if name, _ := networks[i].GetName(); name != keep {
			_ = networks[i].Destroy()
			_ = networks[i].Undefine()
		}
	}
	pools, _ := c.ListAllStoragePools(0)
	for i := range pools {
		_ = pools[i].Destroy()
		_ = pools[i].Undefine()
	}
}

// smallRoot is a file system whose only process waits to be ended.
func smallRoot(t *testing.T, mark string) string {
	t.Helper()
	dir := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		"bin/busybox": string(busybox),
		"sbin/init":   "#!/bin/busybox sh\ntrap 'exit 0' TERM\necho hello from $$ " + mark + "\n/bin/busybox ls -la /run/host/credentials\nwhile :; do /bin/busybox sleep 1 & wait $!; done\n",
		"proc/x":      "", "sys/x": "", "dev/x": "", "run/x": "",
	} {
		file := filepath.Join(dir, "root", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(dir, "root.raw")
	for _, argv := range [][]string{
		{"truncate", "-s", "64M", image},
		{"mke2fs", "-q", "-t", "ext4", "-d", filepath.Join(dir, "root"), image},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return image
}

func TestContractContainers(t *testing.T) {
	l := lab.Start(t, 0)
	images := [2]provision.Image{
		{Hash: "1111111111111111", Disk: smallRoot(t, "one"), Format: provision.Raw},
		{Hash: "2222222222222222", Disk: smallRoot(t, "two"), Format: provision.Raw},
	}
	provisiontest.Run(t, provisiontest.Setup{
		Open:   func(t *testing.T) *provisiontest.Host { return inLab(t, l, "lxc") },
		Images: func(*testing.T) [2]provision.Image { return images },
		Identity: func(node string) provision.Identity {
			return provision.Identity{Method: provision.Auto, HostKey: []byte("key of " + node), AuthorizedKeys: []string{"ssh-ed25519 AAAA"}, Node: []byte("{}")}
		},
	})
}
