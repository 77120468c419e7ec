package libvirt

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/machinetest"
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

// hypervisorAt returns a hypervisor with functions that change it without the provider.
func hypervisorAt(t *testing.T, o Options) *machinetest.Host {
	t.Helper()
	h, err := Open("test", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.shutdownTimeout = 4 * time.Second
	var mu sync.Mutex
	left := 0
	h.onChange = func(what string) error {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 {
			return nil
		}
		if left > 1 {
			left--
			return nil
		}
		return errors.New("cut off: " + what)
	}
	conn := func(t *testing.T) *libvirt.Connect {
		t.Helper()
		c, _, err := h.connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Close() })
		return c
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return &machinetest.Host{
		Provider: h,
		Objects:  func(t *testing.T) []string { return describeObjects(t, conn(t)) },
		Cut: func(n int) {
			mu.Lock()
			defer mu.Unlock()
			left = n
		},
		AddDomain: func(t *testing.T, name string) {
			c := conn(t)
			text := fmt.Sprintf(`<domain type="%s"><name>%s</name><memory>65536</memory><os><type>hvm</type></os></domain>`, h.host.xml.Type, name)
			if h.host.xml.Type == "lxc" {
				text = fmt.Sprintf(`<domain type="lxc"><name>%s</name><memory>65536</memory><os><type>exe</type><init>/bin/true</init></os></domain>`, name)
			}
			d, err := c.DomainDefineXML(text)
			must(t, err)
			if h.host.test {
				must(t, d.Create())
			}
		},
		AddNetwork: func(t *testing.T, name string, cidr netip.Prefix) {
			text, err := domainxml.Network(provider.Cluster{}, provider.Network{Name: name, Mode: provider.Isolated, CIDR: cidr}, nil)
			must(t, err)
			// Remove the mark.
			from, to := strings.Index(text, "<metadata>"), strings.Index(text, "</metadata>")
			n, err := conn(t).NetworkDefineXML(text[:from] + text[to+len("</metadata>"):])
			must(t, err)
			must(t, n.Create())
			t.Cleanup(func() {
				_ = n.Destroy()
				_ = n.Undefine()
			})
		},
		AddGuest: func(t *testing.T, name, network string) {
			kind := `<type>hvm</type>`
			if h.host.xml.Type == "lxc" {
				kind = `<type>exe</type><init>/bin/true</init>`
			}
			_, err := conn(t).DomainDefineXML(fmt.Sprintf(`<domain type="%s"><name>%s</name><memory>65536</memory><os>%s</os>
				<devices><interface type="network"><source network="%s"/></interface></devices></domain>`, h.host.xml.Type, name, kind, network))
			must(t, err)
		},
		RemoveDomain: func(t *testing.T, name string) {
			d, err := conn(t).LookupDomainByName(name)
			must(t, err)
			if on, err := isActive(d); err == nil && on {
				must(t, d.Destroy())
			}
			must(t, d.Undefine())
		},
		RemoveDisk: func(t *testing.T, c provider.Cluster, node string) {
			must(t, h.runOperation(t.Context(), func(s *session) error {
				p, err := s.findPool()
				if err == nil {
					defer p.free()
					err = p.removeVolume(p.rootVolumeName(c, node))
				}
				return err
			}))
		},
		CopyMachine: func(t *testing.T, name, as string) {
			c := conn(t)
			d, err := c.LookupDomainByName(name)
			must(t, err)
			text, err := d.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
			must(t, err)
			text = regexp.MustCompile(`(?s)\s*<uuid>.*?</uuid>`).ReplaceAllString(text, "")
			text = regexp.MustCompile(`<entry name=.uuid.>.*?</entry>`).ReplaceAllString(text, "")
			_, err = c.DomainDefineXML(strings.Replace(text, "<name>"+name+"<", "<name>"+as+"<", 1))
			must(t, err)
		},
		StopNetwork: func(t *testing.T, name string, keep bool) {
			n, err := conn(t).LookupNetworkByName(name)
			must(t, err)
			must(t, n.Destroy())
			if !keep {
				must(t, n.Undefine())
			}
		},
		UndefineNetwork: func(t *testing.T, name string) {
			n, err := conn(t).LookupNetworkByName(name)
			must(t, err)
			must(t, n.Undefine())
		},
		AddStalePort: func(t *testing.T, network string, c provider.Cluster, node string) {
			n, err := conn(t).LookupNetworkByName(network)
			must(t, err)
			_, err = n.PortCreateXML(fmt.Sprintf(`<networkport><uuid>%s</uuid><owner><name>%s</name><uuid>%s</uuid></owner>
				<mac address="52:54:00:aa:00:99"/></networkport>`, domainxml.DomainUUID(c, "port"), c.Domain(node), domainxml.DomainUUID(c, node)), 0)
			must(t, err)
		},
		Boot: func(t *testing.T, name string) string {
			d, err := conn(t).LookupDomainByName(name)
			must(t, err)
			if on, err := isActive(d); err != nil || !on {
				return ""
			}
			id, err := d.GetID()
			must(t, err)
			return strconv.Itoa(int(id))
		},
		Pause: func(t *testing.T, name string) {
			d, err := conn(t).LookupDomainByName(name)
			must(t, err)
			must(t, d.Suspend())
		},
		PowerOff: func(t *testing.T, name string) {
			d, err := conn(t).LookupDomainByName(name)
			must(t, err)
			must(t, d.Destroy())
		},
	}
}

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
		n, err := describeNetwork(&networks[i])
		if err != nil {
			t.Fatal(err)
		}
		add("network", n.Name, nil)
		for _, r := range n.Reservations {
			add("reservation", fmt.Sprintf("%s %s %s", r.Node, r.MAC, r.Address), nil)
		}
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

func TestContractTestDriver(t *testing.T) {
	machinetest.Run(t, machinetest.Setup{
		Open: func(t *testing.T) *machinetest.Host {
			return hypervisorAt(t, Options{URI: testURI(t), Pool: "nixbench", PoolPath: filepath.Join(t.TempDir(), "pool")})
		},
		Images: func(*testing.T) [2]provider.Image {
			return [2]provider.Image{
				{Hash: "1111111111111111", Disk: "/nowhere", Format: provider.QCOW2},
				{Hash: "2222222222222222", Disk: "/nowhere", Format: provider.QCOW2},
			}
		},
		// The test driver cannot change existing networks.
		Lacks: machinetest.Lacks{Reservations: true, Ports: true, Transient: true},
	})
}
