package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// says checks that the text contains all of the words.
func (b *bareHypervisor) says(text string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%q is not in:\n%s", w, text)
		}
	}
}

// defineXML defines a domain or a network from XML.
func (b *bareHypervisor) defineXML(uri, command, text string) {
	b.t.Helper()
	file := filepath.Join(b.dir, "defined.xml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.l.Virsh(b.t, "-c", uri, command, file)
}

const guest = `<domain type='lxc'><name>guest</name><memory>65536</memory><os><type>exe</type><init>/bin/true</init></os>
<devices><interface type='network'><source network='demo'/></interface></devices></domain>`

// destroy keeps a network to which a machine of another user is connected, and copies of machines, and
// fails with a message until they are removed.
func TestInUse(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	before := b.listObjects("lxc")
	uri := b.l.URI("lxc")
	b.run(0, "apply")
	b.defineXML(uri, "define", guest)
	for range 2 {
		_, stderr := b.run(5, "destroy", "--yes")
		b.says(stderr, "error: hypervisor default: remove network demo: it is in use: used by machine guest", "then run nixbench destroy again")
	}
	b.want("left", b.listObjects("lxc"), append([]string{"guest", "network demo"}, before...))
	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
	b.l.Virsh(t, "-c", uri, "undefine", "guest")

	text := b.l.Virsh(t, "-c", uri, "dumpxml", "--inactive", "demo-w-1")
	text = regexp.MustCompile(`<uuid>.*?</uuid>`).ReplaceAllString(text, "")
	b.defineXML(uri, "define", strings.Replace(text, ">demo-w-1<", ">a-copy<", 1))
	_, stderr = b.run(0, "apply")
	b.want("with a copy", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	_, stderr = b.run(5, "destroy", "--yes")
	b.says(stderr, "remove network demo: it is in use: used by machine a-copy", "2 removed")
	if out := b.l.Virsh(t, "-c", uri, "list --all --name"); out != "a-copy" {
		t.Errorf("the hypervisor has the machines %q, want only a-copy", out)
	}
	b.l.Virsh(t, "-c", uri, "undefine", "a-copy")
	out, _ := b.run(0, "destroy")
	b.says(out, "the remaining networks, images and keys of this cluster are removed")
	b.want("left", b.listObjects("lxc"), before)
}

// If a user stops or removes the network of containers, apply asks whether to restart the containers, and
// connects them again.
func TestNetworkBehindContainers(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	uri := b.l.URI("lxc")
	b.run(0, "apply")
	boots := b.bootIDs()
	for _, how := range []string{"net-destroy demo", "net-destroy demo; net-start demo", "net-destroy demo; net-undefine demo"} {
		b.l.Virsh(t, "-c", uri, how)
		_, stderr := b.run(6, "status")
		b.says(stderr, "warning: network demo was stopped or removed while w-1 ran, so it cannot be reached; nixbench apply connects it again")
		out, _ := b.run(0, "plan")
		b.says(out, "w-1   unreachable", "reconnect: network demo was stopped or removed while the machine ran")
		_, stderr = b.run(2, "apply")
		b.says(stderr, "reconnect w-2 on default: network demo was stopped", "by a restart", "--yes")
		_, stderr = b.run(0, "apply", "--yes")
		b.want(how, results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
		b.says(stderr, "2 reconnected")
		_, stderr = b.run(0, "apply")
		b.says(stderr, "2 kept")
	}
	now := b.bootIDs()
	if now["w-1"] == boots["w-1"] {
		t.Errorf("boots: %v, then %v", boots, now)
	}
	b.l.Virsh(t, "-c", uri, "net-undefine demo")
	b.run(0, "apply")
	if out := b.l.Virsh(t, "-c", uri, "net-list --persistent --name"); out != "demo" {
		t.Errorf("the defined networks are %q, want demo", out)
	}
	if again := b.bootIDs(); again["w-1"] != now["w-1"] || again["w-2"] != now["w-2"] {
		t.Errorf("boots: %v, then %v", now, again)
	}
	b.run(0, "destroy", "--yes")
}

// A virtual machine is connected to its network again by a restart.
func TestNetworkBehindVirtualMachine(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	emulate(t)
	b := newBareHypervisor(t, fmt.Sprintf(`{ count = 1; vcpus = 1; memory = "512M"; disk = "4G"; image = "%s"; }`, lab.Image(t, "vm")))
	uri := b.l.URI("qemu")
	const patience = "--timeout=confirm=5m" // on a busy machine
	b.run(0, "apply", patience)
	boots := b.bootIDs()
	for _, how := range []string{"net-destroy demo", "net-destroy demo; net-undefine demo"} {
		b.l.Virsh(t, "-c", uri, how)
		out, _ := b.run(0, "plan")
		b.says(out, "reconnect: network demo was stopped or removed while the machine ran, so its interface is on no bridge; it is connected again by a restart")
		_, stderr := b.run(0, "apply", patience, "--yes")
		b.want(how, results(stderr), []string{"w-1 unchanged"})
		b.says(stderr, "1 reconnected")
		if now := b.bootIDs(); now["w-1"] == "" || now["w-1"] == boots["w-1"] {
			t.Errorf("boots: %v, then %v", boots, now)
		}
		_, stderr = b.run(0, "apply", patience)
		b.says(stderr, "1 kept")
	}
	b.run(0, "destroy", "--yes")
}

// plan reports machines and networks that cannot be created, and apply refuses them before it creates
// anything.
func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 1)
	b.defineXML(b.l.URI("lxc"), "net-define", strings.Replace(lan, "192.168.77.", "192.168.222.", -1))
	before := b.listObjects("lxc")
	vm := lab.Image(t, "vm")
	for set, want := range map[string]string{
		"":                            "the address range is taken: network demo needs 192.168.222.0/24, and network lan has 192.168.222.0/24",
		"roles.w.image=/nowhere.raw":  "role w: image /nowhere.raw: no such file or directory",
		"roles.w.image=" + vm:         "it is a qcow2",
		"roles.w.xml=this is no <xml": "role w: the option xml: ",
		"cluster.network.name=a/b":    `cluster.network.name: "a/b" cannot be a network`,
		"cluster.network.domain=a..b": "cannot be a DNS domain",
	} {
		args := []string{"--set", "cluster.network.cidr=192.168.223.0/24", "--set", set}
		if set == "" {
			args = nil
		}
		for _, command := range []string{"plan", "apply"} {
			_, stderr := b.run(5, append([]string{command}, args...)...)
			b.says(stderr, want)
		}
	}
	if after := b.listObjects("lxc"); !slices.Equal(before, after) {
		t.Errorf("before %q, after %q", before, after)
	}
	out, _ := b.run(0, "destroy")
	b.says(out, "nixbench has booted no machine of this cluster")
}
