package libvirt

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// With a file, each connection has a hypervisor of its own; test:///default is shared.
const emptyNode = `<node>
  <cpu><mhz>1000</mhz><model>x86_64</model><active>4</active><nodes>1</nodes><sockets>1</sockets><cores>4</cores><threads>1</threads></cpu>
  <memory>8388608</memory>
</node>`

func testURI(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "node.xml")
	if err := os.WriteFile(file, []byte(emptyNode), 0o644); err != nil {
		t.Fatal(err)
	}
	return "test://" + file
}

// testHost is a hypervisor with functions that change it without the provider.
type testHost struct {
	*Hypervisor
	t   *testing.T
	cut *atomic.Int32 // operations are interrupted before the change with this number; 0: no interruption
}

func hypervisorAt(t *testing.T, o provider.Hypervisor) testHost {
	t.Helper()
	h, err := Open("test", o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.shutdownTimeout = 4 * time.Second
	host := testHost{h, t, &atomic.Int32{}}
	h.onChange = func(what string) error {
		switch left := host.cut.Load(); {
		case left == 1:
			return errors.New("cut off: " + what)
		case left > 1:
			host.cut.Add(-1)
		}
		return nil
	}
	return host
}

func (h testHost) Cut(n int) { h.cut.Store(int32(n)) }

func (h testHost) connection() *libvirt.Connect {
	h.t.Helper()
	c, _, err := h.connect()
	h.must(err)
	h.t.Cleanup(func() { _, _ = c.Close() })
	return c
}

func (h testHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h testHost) domain(name string) *libvirt.Domain {
	h.t.Helper()
	d, err := h.connection().LookupDomainByName(name)
	h.must(err)
	return d
}

func (h testHost) network(name string) *libvirt.Network {
	h.t.Helper()
	n, err := h.connection().LookupNetworkByName(name)
	h.must(err)
	return n
}

func (h testHost) Objects() []string { return describeObjects(h.t, h.connection()) }

func (h testHost) AddDomain(name string) {
	d := h.defineForeign(name, "")
	if h.Hypervisor.host.test {
		h.must(d.Create())
	}
}

func (h testHost) AddGuest(name, network string) {
	h.defineForeign(name, fmt.Sprintf(`<devices><interface type="network"><source network="%s"/></interface></devices>`, network))
}

func (h testHost) defineForeign(name, devices string) *libvirt.Domain {
	h.t.Helper()
	c := h.connection()
	kind := `<type>hvm</type>`
	if h.Hypervisor.host.Type == "lxc" {
		kind = `<type>exe</type><init>/bin/true</init>`
	}
	d, err := c.DomainDefineXML(fmt.Sprintf(`<domain type="%s"><name>%s</name><memory>65536</memory><os>%s</os>%s</domain>`, h.Hypervisor.host.Type, name, kind, devices))
	h.must(err)
	return d
}

func (h testHost) AddNetwork(name string, cidr netip.Prefix) {
	text, err := networkXML(provider.Cluster{}, provider.Network{Name: name, Mode: provider.Isolated, CIDR: cidr}, nil)
	h.must(err)
	// Remove the mark.
	from, to := strings.Index(text, "<metadata>"), strings.Index(text, "</metadata>")
	n, err := h.connection().NetworkDefineXML(text[:from] + text[to+len("</metadata>"):])
	h.must(err)
	h.must(n.Create())
	h.t.Cleanup(func() {
		_ = n.Destroy()
		_ = n.Undefine()
	})
}

func (h testHost) RemoveDomain(name string) {
	d := h.domain(name)
	if on, err := isActive(d); err == nil && on {
		h.must(d.Destroy())
	}
	h.must(d.Undefine())
}

func (h testHost) RemoveDisk(c provider.Cluster, node string) {
	h.must(h.runOperation(h.t.Context(), func(s *session) error {
		p, err := s.findPool()
		if err == nil {
			err = p.removeVolume(s.host.rootVolumeName(c, node))
		}
		return err
	}))
}

func (h testHost) CopyMachine(name, as string) {
	text, err := h.domain(name).GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
	h.must(err)
	text = regexp.MustCompile(`(?s)\s*<uuid>.*?</uuid>`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`<entry name=.uuid.>.*?</entry>`).ReplaceAllString(text, "")
	_, err = h.connection().DomainDefineXML(strings.Replace(text, "<name>"+name+"<", "<name>"+as+"<", 1))
	h.must(err)
}

func (h testHost) StopNetwork(name string, keep bool) {
	n := h.network(name)
	h.must(n.Destroy())
	if !keep {
		h.must(n.Undefine())
	}
}

func (h testHost) Boot(name string) int {
	d := h.domain(name)
	if on, err := isActive(d); err != nil || !on {
		return 0
	}
	id, err := d.GetID()
	h.must(err)
	return int(id)
}

func (h testHost) Pause(name string)    { h.must(h.domain(name).Suspend()) }
func (h testHost) PowerOff(name string) { h.must(h.domain(name).Destroy()) }

// describeObjects describes all objects on a hypervisor.
func describeObjects(t *testing.T, c *libvirt.Connect) []string {
	t.Helper()
	var all []string
	add := func(kind, name string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kind+" "+name)
	}
	domains, err := c.ListAllDomains(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range domains {
		name, err := domains[i].GetName()
		add("domain", name, err)
	}
	networks, err := c.ListAllNetworks(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range networks {
		name, err := networks[i].GetName()
		add("network", name, err)
	}
	pools, err := c.ListAllStoragePools(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pools {
		name, err := pools[i].GetName()
		add("pool", name, err)
		if active, _ := pools[i].IsActive(); !active {
			continue
		}
		if err := pools[i].Refresh(0); err != nil {
			t.Fatal(err)
		}
		volumes, err := pools[i].ListStorageVolumes()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range volumes {
			if !strings.HasSuffix(v, ".console") { // exists only after the first output
				add("volume", v, nil)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestContractFake tests that the simulated hypervisor of the package fake fulfils the same contract.
func TestContractFake(t *testing.T) {
	for _, kind := range []provider.Kind{provider.VM, provider.Container} {
		t.Run(string(kind), func(t *testing.T) {
			testContract(t, Setup{
				Open: func(*testing.T) Host {
					h := fake.New()
					h.Kind = kind
					return h
				},
				Images: [2]provider.Image{{Hash: "1111111111111111"}, {Hash: "2222222222222222"}},
			})
		})
	}
}

func TestContractTestDriver(t *testing.T) {
	testContract(t, Setup{
		Open: func(t *testing.T) Host {
			return hypervisorAt(t, provider.Hypervisor{URI: testURI(t), Pool: "nixbench", PoolPath: filepath.Join(t.TempDir(), "pool")})
		},
		Images: [2]provider.Image{
			{Hash: "1111111111111111", Disk: "/nowhere", Format: provider.QCOW2},
			{Hash: "2222222222222222", Disk: "/nowhere", Format: provider.QCOW2},
		},
		// The test driver cannot change existing networks.
		Lacks: Lacks{Reservations: true},
	})
}
