package activate

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An incomplete record at the end of the file of the state, as a power cut or a full disk leaves it, does not count, and does
// not damage the next record.
func TestScriptIncompleteRecord(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	n.mkdir("run/nixbench/activate")
	record := func(run, phase string) string {
		return "\nrun=" + run + "\ngoal=switch\npath=" + n.newPath + "\nphase=" + phase + "\noutcome=committed\nsaved=yes\n"
	}
	for text, want := range map[string]string{
		"\nrun=r1\npha":                                                              "",
		record("r1", "done"):                                                         "r1 done",
		record("r1", "done") + "\nrun=r":                                             "r1 done",
		record("r1", "done") + "\nrun=r2\n":                                          "r1 done",
		record("r1", "done") + "\nrun=r" + record("r2", "waiting"):                   "r2 waiting",
		"run=r1\nphase=starting\n" + record("r1", "done"):                            "r1 done",
		record("r1", "starting") + record("r1", "waiting") + "\nrun=r1\nphase=commi": "r1 waiting",
	} {
		n.write("run/nixbench/activate/state", text)
		node, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if node.Last != nil {
			got = node.Last.ID + " " + node.Last.phase
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// An inspection for an apply reports the same systems as a full one, and asks no program.
func TestScriptInspectSystems(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	for _, system := range []string{"nix/store/old", "nix/store/new"} {
		n.write(system+"/kernel", system)
		n.write(system+"/initrd", "")
		n.mkdir(system + "/kernel-modules")
	}
	n.link(n.newPath, "nix/var/nix/profiles/system-2-link")
	n.link(n.oldPath, "nix/var/nix/profiles/system-3-link")
	for link, reboot := range map[string]bool{"system-1-link": false, "system-2-link": true, "system-3-link": false} {
		if err := exec.Command("ln", "-sfn", link, filepath.Join(n.root, "nix/var/nix/profiles/system")).Run(); err != nil {
			t.Fatal(err)
		}
		full, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
		if err != nil {
			t.Fatal(err)
		}
		asked := n.read("world/asked")
		got, err := n.a.Inspect(t.Context(), "web-1", n.host, Systems)
		if err != nil {
			t.Fatal(err)
		}
		if now := n.read("world/asked"); now != asked {
			t.Errorf("asked systemd: %s", strings.TrimPrefix(now, asked))
		}
		n.write("world/failed", "web.service loaded failed failed web\n")
		units, err := n.a.Inspect(t.Context(), "web-1", n.host, Units)
		if err != nil || !slices.Equal(units.Failed, []string{"web.service"}) || units.fingerprint() != got.fingerprint() {
			t.Errorf("%+v, %v", units, err)
		}
		if now := n.read("world/asked"); strings.Count(strings.TrimPrefix(now, asked), "\n") != 1 {
			t.Errorf("asked systemd: %s", strings.TrimPrefix(now, asked))
		}
		if got.fingerprint() != full.fingerprint() || got.Booted != full.Booted || got.GenerationOf(n.newPath) != 2 || got.GenerationOf(n.oldPath) != full.GenerationOf(n.oldPath) {
			t.Errorf("%s: got %+v\nwant %+v", link, got, full)
		}
		if full.RebootNeeded() != reboot || got.RebootNeeded() != reboot {
			t.Errorf("%s: a reboot is needed: %t and %t, want %t", link, full.RebootNeeded(), got.RebootNeeded(), reboot)
		}
	}
}
