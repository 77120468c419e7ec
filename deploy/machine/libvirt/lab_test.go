package libvirt

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/e2e/lab"
)

// uriOf returns the URI of the lab's libvirtd with this driver.
func uriOf(l *lab.Lab, driver string) string {
	return driver + "+unix:///system?socket=" + filepath.Join(l.Dir, "libvirt", "libvirt-sock")
}

var pools atomic.Int32

// inLab returns a hypervisor of the lab without objects of a cluster. What a test leaves there is removed
// when the test ends.
func inLab(t *testing.T, l *lab.Lab, driver string) Host {
	t.Helper()
	o := provider.Hypervisor{URI: uriOf(l, driver), Pool: "nixbench", PoolPath: filepath.Join(l.Dir, fmt.Sprintf("pool%d", pools.Add(1)))}
	h := hypervisorAt(t, o)
	if driver == "qemu" { // the guests do not react to a shutdown
		h.shutdownTimeout = time.Second
	}
	t.Cleanup(func() { purge(t, o.URI, l.Network) })
	return h
}

// purge removes all objects but one network.
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

// smallRoot returns a file system whose only process waits until it is killed.
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
	t.Parallel()
	l := lab.Hypervisor(t)
	images := [2]provider.Image{
		{Hash: "1111111111111111", Disk: smallRoot(t, "one"), Format: provider.Raw},
		{Hash: "2222222222222222", Disk: smallRoot(t, "two"), Format: provider.Raw},
	}
	testContract(t, Setup{
		Open:   func(t *testing.T) Host { return inLab(t, l, "lxc") },
		Images: images,
		Identity: func(node string) provider.Identity {
			return provider.Identity{HostKey: []byte("key of " + node), AuthorizedKey: "ssh-ed25519 AAAA", Node: []byte("{}")}
		},
	})
}

// emptyDisk returns a disk without a boot loader: its machine stays in the firmware.
func emptyDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", file, "64M").CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v\n%s", err, out)
	}
	return file
}

func TestContractVirtualMachines(t *testing.T) {
	t.Parallel()
	l := lab.Hypervisor(t)
	images := [2]provider.Image{
		{Hash: "1111111111111111", Disk: emptyDisk(t), Format: provider.QCOW2},
		{Hash: "2222222222222222", Disk: emptyDisk(t), Format: provider.QCOW2},
	}
	testContract(t, Setup{
		Open:   func(t *testing.T) Host { return inLab(t, l, "qemu") },
		Images: images,
		Identity: func(node string) provider.Identity {
			return provider.Identity{HostKey: []byte("key of " + node), AuthorizedKey: "ssh-ed25519 AAAA", Node: []byte("{}")}
		},
	})
}

// killLibvirtd kills the lab's libvirtd, which the lab starts again.
func killLibvirtd(t *testing.T, l *lab.Lab) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.Dir, "world.pid"))
	if err != nil {
		t.Fatal(err)
	}
	world, _, _ := strings.Cut(string(text), " ")
	// The lab's process is unshare; its child is the first process in the namespace.
	for _, pid := range children(t, world) {
		for _, pid := range append(children(t, pid), grandchildren(t, pid)...) {
			if comm, _ := os.ReadFile("/proc/" + pid + "/comm"); strings.TrimSpace(string(comm)) == "libvirtd" {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatal("there is no libvirtd in the lab")
}

func children(t *testing.T, pid string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

func grandchildren(t *testing.T, pid string) []string {
	t.Helper()
	var all []string
	for _, c := range children(t, pid) {
		all = append(all, children(t, c)...)
	}
	return all
}

// faultLab returns a lab with an image, and the spec of one machine in it.
func faultLab(t *testing.T) (*lab.Lab, provider.Hypervisor, provider.Cluster, provider.HostSetup, provider.Spec) {
	t.Helper()
	l := lab.Hypervisor(t)
	o := provider.Hypervisor{URI: uriOf(l, "lxc"), Pool: "nixbench", PoolPath: filepath.Join(l.Dir, "pool")}
	net := provider.Network{Name: "nbfault", Mode: provider.NAT, CIDR: netip.MustParsePrefix("192.168.240.0/24"), Domain: "internal"}
	image := provider.Image{Hash: "1111111111111111", Disk: smallRoot(t, "fault"), Format: provider.Raw}
	s := provider.Spec{
		Node: "n1", Role: "worker", MAC: "52:54:00:aa:00:01", Address: netip.MustParseAddr("192.168.240.10"),
		VCPUs: 1, Memory: 64 << 20, Image: image, NewDisks: true,
	}
	g := provider.HostSetup{Network: net, Images: []provider.Image{image}, Reservations: []provider.Reservation{{Node: "n1", MAC: s.MAC, Address: s.Address}}}
	return l, o, provider.Cluster{Name: "fault", ID: "00112233445566aa"}, g, s
}

// libvirtd is killed before each change in turn. The operation fails with an error that says so, and the next one completes it.
func TestLibvirtdIsRestarted(t *testing.T) {
	t.Parallel()
	l, o, c, g, s := faultLab(t)
	h, err := Open("lab", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { purge(t, o.URI, l.Network); _ = h.Close() })
	if err := h.Prepare(t.Context(), c, g); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"create nb.", "upload", "define the domain", "start the domain"} {
		killed := false
		h.onChange = func(what string) error {
			if !killed && strings.HasPrefix(what, at) {
				killed = true
				time.Sleep(2 * time.Second) // the lab does not restart a libvirtd that ends at once
				killLibvirtd(t, l)
			}
			return nil
		}
		start := time.Now()
		err := h.Ensure(t.Context(), c, g.Network, s)
		var e *provider.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "broke") || !strings.Contains(e.Fix, "run the command again") || e.Node != "n1" {
			t.Errorf("killed before %s: %v", at, err)
		}
		for time.Since(start) < 20*time.Second { // libvirtd has to be started again
			if err = h.Ensure(t.Context(), c, g.Network, s); !errors.Is(err, provider.ErrUnreachable) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			t.Fatalf("after libvirtd was killed before %s: %v", at, err)
		}
		t.Logf("killed before %s: %s", at, time.Since(start))
		h.onChange = nil
		inventory, err := h.Survey(t.Context(), c, g.Network)
		if err != nil || len(inventory.Machines) != 1 || inventory.Machines[0].State != provider.Running || !killed {
			t.Fatalf("killed before %s (%t): %+v, %v", at, killed, inventory, err)
		}
		if err := h.Remove(t.Context(), c, "n1"); err != nil {
			t.Fatal(err)
		}
		if err := h.Prepare(t.Context(), c, g); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullPool(t *testing.T) {
	t.Parallel()
	l, o, c, g, s := faultLab(t)
	// libvirtd has a mount namespace of its own, so the file system is mounted in that.
	full := filepath.Join(l.Dir, "pool")
	if err := os.MkdirAll(full, 0o711); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, "world.pid"))
	if err != nil {
		t.Fatal(err)
	}
	world, _, _ := strings.Cut(string(text), " ")
	mount := []string{"--mount=/proc/" + world + "/ns/mnt", "--", "mount", "-t", "tmpfs", "-o", "size=1M,mode=711", "tmpfs", full}
	if out, err := exec.Command("nsenter", mount...).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	h, err := Open("lab", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { purge(t, o.URI, l.Network); _ = h.Close() })
	if err := h.Prepare(t.Context(), c, g); err != nil {
		t.Fatal(err)
	}
	err = h.Ensure(t.Context(), c, g.Network, s)
	var e *provider.Error
	if !errors.Is(err, provider.ErrFull) || !errors.As(err, &e) || e.Fix == "" {
		t.Errorf("err = %v", err)
	}
	t.Log(err)
	if err := h.Remove(t.Context(), c, "n1"); err != nil {
		t.Error(err)
	}
}

// Two drivers of one libvirtd share a network and, if the hive configures it, a pool. Each observes only its
// own machines and does not change the disks of the other.
func TestTwoDrivers(t *testing.T) {
	t.Parallel()
	l, o, c, g, container := faultLab(t)
	t.Cleanup(func() { purge(t, o.URI, l.Network); purge(t, uriOf(l, "qemu"), l.Network) })
	vm := container
	vm.Node, vm.MAC, vm.Address = "n2", "52:54:00:aa:00:02", netip.MustParseAddr("192.168.240.11")
	vm.Image = provider.Image{Hash: "2222222222222222", Disk: emptyDisk(t), Format: provider.QCOW2}
	g.Reservations = append(g.Reservations, provider.Reservation{Node: vm.Node, MAC: vm.MAC, Address: vm.Address})
	hs := map[string]*Hypervisor{}
	for driver, s := range map[string]provider.Spec{"lxc": container, "qemu": vm} {
		o.URI = uriOf(l, driver)
		h, err := Open(driver, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		hs[driver] = h
		g.Images = []provider.Image{s.Image}
		if err := h.Prepare(t.Context(), c, g); err != nil {
			t.Fatal(err)
		}
		if err := h.Ensure(t.Context(), c, g.Network, s); err != nil {
			t.Fatal(err)
		}
	}
	host := ""
	for driver, node := range map[string]string{"lxc": "n1", "qemu": "n2"} {
		inventory, err := hs[driver].Survey(t.Context(), c, g.Network)
		if err != nil {
			t.Fatal(err)
		}
		if len(inventory.Machines) != 1 || inventory.Machines[0].Node != node || inventory.Machines[0].State != provider.Running {
			t.Errorf("%s sees %+v", driver, inventory.Machines)
		}
		if len(inventory.Network.Reservations) != 2 {
			t.Errorf("%s: reservations %v", driver, inventory.Network.Reservations)
		}
		if inventory.Host == "" || host != "" && inventory.Host != host {
			t.Errorf("hosts %q and %q", inventory.Host, host)
		}
		host = inventory.Host
	}
	conn, _, err := hs["lxc"].connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	volumes := func() (all []string) {
		for _, object := range describeObjects(t, conn) {
			if strings.HasPrefix(object, "volume ") {
				all = append(all, object)
			}
		}
		return all
	}
	before := volumes()
	for driver, node := range map[string]string{"lxc": "n2", "qemu": "n1"} {
		if err := hs[driver].Remove(t.Context(), c, node); err != nil {
			t.Error(err)
		}
		if after := volumes(); !slices.Equal(before, after) {
			t.Fatalf("%s has removed something of %s: %q, then %q", driver, node, before, after)
		}
	}
	for driver, node := range map[string]string{"lxc": "n1", "qemu": "n2"} {
		if err := hs[driver].Remove(t.Context(), c, node); err != nil {
			t.Error(err)
		}
	}
	for _, h := range hs {
		if err := h.Clean(t.Context(), c, true); err != nil {
			t.Error(err)
		}
	}
	if left := volumes(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A machine with UEFI gets a firmware that boots the boot loaders of NixOS, which are not signed.
func TestFirmwareWithoutSecureBoot(t *testing.T) {
	t.Parallel()
	l, o, c, g, s := faultLab(t)
	o.URI = uriOf(l, "qemu")
	s.Firmware = provider.UEFI
	s.Image = provider.Image{Hash: "2222222222222222", Disk: emptyDisk(t), Format: provider.QCOW2}
	g.Images = []provider.Image{s.Image}
	h, err := Open("lab", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { purge(t, o.URI, l.Network); _ = h.Close() })
	h.shutdownTimeout = time.Second
	if err := h.Prepare(t.Context(), c, g); err != nil {
		t.Fatal(err)
	}
	if err := h.Ensure(t.Context(), c, g.Network, s); err != nil {
		t.Fatal(err)
	}
	text := l.Virsh(t, "-c", l.URIs["qemu"], "dumpxml "+c.MachineName(s.Node))
	_, rest, _ := strings.Cut(text, "<loader")
	loader, _, _ := strings.Cut(rest, "</loader>")
	if !strings.HasSuffix(loader, ".fd") || strings.Contains(loader, "secure='yes'") || strings.Contains(loader, ".ms.") || strings.Contains(loader, "secboot") {
		t.Errorf("the loader is %q of\n%s", loader, text)
	}
}
