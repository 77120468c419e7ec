package provision

import (
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
	uri := b.l.URIs["lxc"]
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

// plan reports machines and networks that cannot be created, and apply refuses them before it creates
// anything.
func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 1)
	before := b.listObjects("lxc")
	vm := lab.Image(t, "vm")
	for set, want := range map[string]string{
		"roles.w.image=/nowhere.raw":  "role w: image /nowhere.raw: no such file or directory",
		"roles.w.image=" + vm:         "it is a qcow2",
		"roles.w.xml=this is no <xml": "role w: the option xml: ",
	} {
		for _, command := range []string{"plan", "apply"} {
			_, stderr := b.run(5, command, "--set", set)
			b.says(stderr, want)
		}
	}
	if after := b.listObjects("lxc"); !slices.Equal(before, after) {
		t.Errorf("before %q, after %q", before, after)
	}
	out, _ := b.run(0, "destroy")
	b.says(out, "nixbench has booted no machine of cluster ")
}
