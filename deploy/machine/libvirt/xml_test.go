package libvirt

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

var update = flag.Bool("update", false, "rewrite the examples in testdata")

var (
	cluster  = provider.Cluster{Name: "bench", ID: "00112233445566aa"}
	nat      = provider.Network{Name: "nixbench", Mode: provider.NAT, CIDR: netip.MustParsePrefix("192.168.222.0/24"), Domain: "internal"}
	identity = provider.Identity{
		HostKey: []byte("a private key"), AuthorizedKey: "ssh-ed25519 AAAA one", Node: []byte(`{"name":"worker-1"}`),
	}
	reservation = provider.Reservation{Node: "worker-1", MAC: "52:54:00:aa:00:01", Address: netip.MustParseAddr("192.168.222.11")}
)

func aMachine() machine {
	return machine{
		Cluster: cluster, Network: nat, Image: "1111111111111111",
		Host: host{Type: "kvm", Arch: "x86_64"},
		Spec: provider.Spec{
			Node: "worker-1", Role: "worker", Index: 1, MAC: reservation.MAC, Address: reservation.Address,
			VCPUs: 2, Memory: 2 << 30, Disk: 20 << 30, Firmware: provider.BIOS, Identity: identity,
			Image: provider.Image{Hash: "1111111111111111", Format: provider.QCOW2},
		},
		Files: files{Root: "/pool/root", Console: "/pool/console", Credential: "/pool/credential"},
	}
}

func aContainer() machine {
	m := aMachine()
	m.Host.Type = "lxc"
	m.Files = files{Root: "/pool/root", Credential: "/pool/seed", Hostname: "/pool/hostname"}
	return m
}

func with(m machine, change func(*machine)) machine {
	change(&m)
	return m
}

func TestExamples(t *testing.T) {
	domain := func(m machine) func() (string, error) { return func() (string, error) { return domainXML(m) } }
	network := func(n provider.Network) func() (string, error) {
		return func() (string, error) { return networkXML(cluster, n, []provider.Reservation{reservation}) }
	}
	fill := func(template string, data any) func() (string, error) {
		return func() (string, error) { return executeTemplate(template, data) }
	}
	for name, make := range map[string]func() (string, error){
		"kvm":      domain(aMachine()),
		"emulated": domain(with(aMachine(), func(m *machine) { m.Host.Type = "qemu" })),
		"uefi": domain(with(aMachine(), func(m *machine) {
			m.Host.Type, m.Spec.Firmware = "qemu", provider.UEFI
		})),
		"kernel-pins-disks": domain(with(aMachine(), func(m *machine) {
			m.Spec.Pins = []string{"2", "4-7"}
			m.Spec.Image.Cmdline = "console=ttyS0 root=/dev/vda"
			m.Files.Kernel, m.Files.Initrd, m.Files.Disks = "/pool/kernel", "/pool/initrd", []string{"/pool/disk1"}
		})),
		"bridge": domain(with(aMachine(), func(m *machine) {
			m.Network = provider.Network{Mode: provider.Bridge, Bridge: "br0"}
		})),
		"aarch64":   domain(with(aMachine(), func(m *machine) { m.Host, m.Spec.Firmware = host{Type: "qemu", Arch: "aarch64"}, provider.UEFI })),
		"container": domain(aContainer()),
		"container-merged": domain(with(aContainer(), func(m *machine) {
			m.Spec.Init = "/init"
			m.Spec.XML = `<domain><features><capabilities policy='allow'/></features>
				<devices><hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev></devices></domain>`
		})),
		"merged": domain(with(aMachine(), func(m *machine) {
			m.Spec.XML = `<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
				<memory unit='GiB'>3</memory>
				<devices><watchdog model='i6300esb'/></devices>
				<qemu:commandline><qemu:arg value='-no-hpet'/></qemu:commandline></domain>`
		})),
		"network-nat": network(nat),
		"network-isolated": network(provider.Network{
			Name: "a-name-that-is-longer-than-interfaces", Mode: provider.Isolated, CIDR: netip.MustParsePrefix("10.7.0.0/16"),
		}),
		"reservation": fill("reservation", reservation),
		"pool":        func() (string, error) { return poolXML("nixbench", "/var/lib/libvirt/nixbench") },
		"volume-overlay": fill("volume", volume{
			Name: "root", Format: "qcow2", Capacity: 20 << 30, Backing: "/pool/image", BackingFormat: "qcow2", Mode: "0600",
		}),
		"volume-raw": fill("volume", volume{Name: "root", Format: "raw", Capacity: 100, Mode: "0600"}),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := make()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got, "private") {
				t.Error("it holds a secret")
			}
			file := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("%s; if it is meant so, run go test -update\n%s", file, diff)
			}
		})
	}
}

func TestMarkIsFound(t *testing.T) {
	m := aMachine()
	text, err := domainXML(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseDomain(text)
	if err != nil {
		t.Fatal(err)
	}
	want := domainInfo{
		Name: "bench-worker-1", UUID: domainUUID(cluster, "worker-1"), MAC: m.Spec.MAC,
		Networks: []string{"nixbench"}, VCPUs: 2, Memory: 2 << 30, Disks: []string{"/pool/root"},
		Mark: &machineMark{
			Cluster: "bench", ID: cluster.ID, Node: "worker-1", Role: "worker",
			Image: m.Image, Definition: m.Spec.Definition(),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Special characters in names and options stay inside their element or attribute.
func TestSpecialCharacters(t *testing.T) {
	const special = `a<b>&"'/>`
	for _, m := range []machine{aMachine(), aContainer()} {
		m.Cluster.Name, m.Spec.Role, m.Spec.Init, m.Network.Name = special, special, special, special
		m.Files.Root, m.Files.Kernel, m.Spec.Image.Cmdline = special, special, special
		text, err := domainXML(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseDomain(text)
		if err != nil || got.Name != special+"-worker-1" || got.Mark == nil || got.Mark.Role != special || got.Networks[0] != special {
			t.Errorf("%+v, %v", got, err)
		}
	}
	n := nat
	n.Name, n.Domain = special, special
	text, err := networkXML(cluster, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseNetwork(text); err != nil || got.Name != special || got.Domain != special || got.Mark == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Other tools put their own elements beside the mark, and some use the same element names.
func TestMarkAmongOthers(t *testing.T) {
	const theirs = `<a:machine xmlns:a="urn:else" id="x"/><b xmlns="urn:more"><c/>text</b>`
	const ours = `<n:network xmlns:n="urn:nixbench:network:1" id="1" cluster="c"/>`
	if m := parseMarks(theirs + ours).Network; m == nil || m.ID != "1" || m.Cluster != "c" {
		t.Errorf("mark %+v", m)
	}
	for _, none := range []string{"", theirs, "<network id='1'/>", "<broken"} {
		if m := parseMarks(none).Network; m != nil {
			t.Errorf("%s: mark %+v", none, m)
		}
	}
}

func TestNetworkIsRead(t *testing.T) {
	text, err := networkXML(cluster, nat, []provider.Reservation{reservation})
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseNetwork(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Mark == nil || got.Mark.ID != cluster.ID || got.Mode != provider.NAT || got.Domain != "internal" ||
		len(got.CIDRs) != 1 || got.CIDRs[0] != nat.CIDR || len(got.Reservations) != 1 || got.Reservations[0] != reservation {
		t.Errorf("%+v", got)
	}
	got, err = parseNetwork(`<network><name>default</name><forward mode='nat'/><ip address='192.168.122.1' netmask='255.255.255.0'/></network>`)
	if err != nil || got.Mark != nil || len(got.CIDRs) != 1 || got.CIDRs[0] != netip.MustParsePrefix("192.168.122.0/24") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNetworkRefusesRanges(t *testing.T) {
	for _, cidr := range []string{"fd00::/64", "10.0.0.0/30"} {
		n := nat
		n.CIDR = netip.MustParsePrefix(cidr)
		if _, err := networkXML(cluster, n, nil); err == nil {
			t.Errorf("%s is taken", cidr)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"nonsense":                           "role worker",
		"<domain":                            "role worker",
		"<domain><devices></domain>":         "<devices> closed by </domain>",
		"<devices/>":                         "not <domain>",
		"<domain><name>x</name></domain>":    "are set by nixbench",
		"<domain><metadata/></domain>":       "are set by nixbench",
		"<domain><vcpu>many</vcpu></domain>": "role worker",
	} {
		_, err := domainXML(with(aMachine(), func(m *machine) { m.Spec.XML = text }))
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "role worker") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMergeKeepsOwnElements(t *testing.T) {
	text, err := domainXML(with(aMachine(), func(m *machine) {
		m.Spec.XML = `<domain type='qemu'><cpu mode='maximum'/><sysinfo type='smbios'/><sysinfo type='fwcfg'><entry name='opt/x' file='/y'/></sysinfo></domain>`
	}))
	if err != nil {
		t.Fatal(err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if d.Type != "qemu" || d.CPU.Mode != "maximum" || len(d.SysInfo) != 2 || len(d.Devices.Disks) != 1 {
		t.Errorf("%s", text)
	}
}

func TestBridgeNamesFit(t *testing.T) {
	a, b := bridgeName("nixbench"), bridgeName("nixbench2")
	if a == b || len(a) > 15 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestNoBIOS(t *testing.T) {
	m := aMachine()
	m.Host.Arch = "aarch64"
	if _, err := domainXML(m); err == nil || err.Error() != `role worker: a machine of aarch64 has no BIOS; set roles.worker.firmware = "uefi"` {
		t.Error(err)
	}
	m.Spec.Image.Kernel = "/boot/Image"
	if _, err := domainXML(m); err != nil {
		t.Error(err)
	}
}
