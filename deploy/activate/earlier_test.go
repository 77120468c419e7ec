package activate

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Runs of earlier versions of nixbench, which replaced the file of the state at each change, made the root "next", and
// took any file as an answer. This version takes them over.

// earlierRecord returns the state of a run to the new system as an earlier version wrote it.
func (n *standIn) earlierRecord(boot, phase, outcome string) string {
	return fmt.Sprintf(`run=r0
goal=switch
path=%[1]s
spec=
to=%[1]s
from=%[2]s
was=1
wasPath=%[2]s
armed=20
settle=1
activator=
generation=
phase=%[3]s
deadline=%[4]d
outcome=%[5]s
reason=
code=0
broken=
users=
still=
jobs=
failedBefore=
boot=%[6]s
time=%[7]d
`, n.newPath, n.oldPath, phase, int(uptime(n.t).Seconds())+20, outcome, boot, time.Now().Unix())
}

// writeEarlier writes the files of a run of an earlier version.
func (n *standIn) writeEarlier(record string) {
	n.t.Helper()
	for _, dir := range []string{"run/nixbench/activate", "var/lib/nixbench/activate", "nix/var/nix/gcroots/nixbench"} {
		n.mkdir(dir)
		if strings.HasSuffix(dir, "activate") {
			n.write(dir+"/state", record)
		}
	}
	n.link(n.newPath, "nix/var/nix/gcroots/nixbench/next")
	n.link(n.oldPath, "nix/var/nix/gcroots/nixbench/previous")
	n.write("run/nixbench/activate/log", "activating the configuration...\n")
	n.write("run/nixbench/activate/script", "exit 1\n")
}

// startEarlier starts a unit that waits for an answer as an earlier version did, and then ends the run.
func (n *standIn) startEarlier() {
	n.t.Helper()
	live := filepath.Join(n.root, "run/nixbench/activate")
	script := `echo "$$ $(cut -d " " -f 22 /proc/$$/stat)" >"$1"
while :; do
  if [ -e "$2/confirm" ]; then outcome=committed; break; fi
  if [ -e "$2/abort" ]; then outcome=rolled-back; ln -sfn "$4" "$3/run/current-system"; break; fi
  sleep 0.05
done
if [ $outcome = committed ]; then
  ln -sfn "$5" "$3/nix/var/nix/profiles/system-2-link"
  ln -sfn system-2-link "$3/nix/var/nix/profiles/system"
fi
rm -f "$3/nix/var/nix/gcroots/nixbench/next"
sed -e "s/^phase=.*/phase=done/" -e "s/^outcome=.*/outcome=$outcome/" "$2/state" >"$2/state.new"
cp "$2/state.new" "$3/var/lib/nixbench/activate/state"
mv "$2/state.new" "$2/state"
rm -f "$1"`
	process := exec.Command("setsid", "sh", "-c", script, "earlier", filepath.Join(n.world, "units/nixbench-activate.service"), live, n.root, n.oldPath, n.newPath)
	if err := process.Start(); err != nil {
		n.t.Fatal(err)
	}
	go process.Wait()
	waitFor(n.t, 10*time.Second, "the unit of the earlier run", func() bool { return n.read("world/units/nixbench-activate.service") != "" })
}

func TestScriptEarlierVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, n *standIn, boot string){
		"its answers do not count for the next run": func(t *testing.T, n *standIn, boot string) {
			n.writeEarlier(n.earlierRecord(boot, "done", "rolled-back"))
			for _, answer := range []string{"confirm", "confirm-again", "abort"} {
				n.write("run/nixbench/activate/"+answer, "")
			}
			before, err := n.a.Inspect(t.Context(), "web-1", n.host)
			if err != nil || before.Last == nil || before.Last.ID != "r0" || before.Last.Outcome != RolledBack || before.HasUnfinishedRun() {
				t.Fatalf("%+v, %v", before.Last, err)
			}
			w := n.a.newWatch("web-1", n.host, "r1", 20*time.Second)
			if err := w.follow(t.Context(), false, "start", "r1", "switch", n.newPath, "", "20", "", "", "1"); err != nil || w.lastRun().phase != phaseWaiting {
				t.Errorf("%+v, %v", w.lastRun(), err)
			}
			n.is(n.newPath, n.oldPath, "new test")
		},
		"waits for its confirmation": func(t *testing.T, n *standIn, boot string) {
			n.relink(n.newPath, "run/current-system")
			n.writeEarlier(n.earlierRecord(boot, "waiting", ""))
			n.startEarlier()
			res, err := n.activate(n.request())
			if err != nil || res.PreviousRun == nil || res.PreviousRun.ID != "r0" || res.PreviousRun.Outcome != Committed || res.Changed {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "")
		},
		"is rolled back for another system": func(t *testing.T, n *standIn, boot string) {
			n.relink(n.newPath, "run/current-system")
			n.writeEarlier(n.earlierRecord(boot, "waiting", ""))
			n.startEarlier()
			r := n.request()
			r.Path = n.oldPath
			res, err := n.activate(r)
			if err != nil || res.PreviousRun == nil || res.PreviousRun.Outcome != RolledBack {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "")
		},
		"was ended by a reboot": func(t *testing.T, n *standIn, boot string) {
			n.writeEarlier(n.earlierRecord("another", "committing", ""))
			for _, file := range []string{"state", "log", "script"} { // a reboot empties /run
				if err := exec.Command("rm", filepath.Join(n.root, "run/nixbench/activate", file)).Run(); err != nil {
					t.Fatal(err)
				}
			}
			res, err := n.activate(n.request())
			if err != nil || res.PreviousRun == nil || !res.PreviousRun.Rebooted || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new test", "new boot")
			if got := n.glob("nix/var/nix/gcroots/nixbench/*"); got != "previous" {
				t.Errorf("roots of the garbage collector: %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newStandIn(t)
			boot, err := exec.Command("cat", "/proc/sys/kernel/random/boot_id").Output()
			if err != nil {
				t.Fatal(err)
			}
			test(t, n, strings.TrimSpace(string(boot)))
		})
	}
}

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
		"run=r1\nphase=done\n" + "\nrun=r1\nphase=com":                               "r1 done",
		record("r1", "starting") + record("r1", "waiting") + "\nrun=r1\nphase=commi": "r1 waiting",
	} {
		n.write("run/nixbench/activate/state", text)
		node, err := n.a.Inspect(t.Context(), "web-1", n.host)
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
		full, err := n.a.Inspect(t.Context(), "web-1", n.host)
		if err != nil {
			t.Fatal(err)
		}
		asked := n.read("world/asked")
		got, err := n.a.InspectSystems(t.Context(), "web-1", n.host)
		if err != nil {
			t.Fatal(err)
		}
		if now := n.read("world/asked"); now != asked {
			t.Errorf("asked systemd: %s", strings.TrimPrefix(now, asked))
		}
		if got.fingerprint() != full.fingerprint() || got.Booted != full.Booted || got.GenerationOf(n.newPath) != 2 || got.GenerationOf(n.oldPath) != 3 {
			t.Errorf("%s: got %+v\nwant %+v", link, got, full)
		}
		if full.RebootNeeded() != reboot || got.RebootNeeded() != reboot {
			t.Errorf("%s: a reboot is needed: %t and %t, want %t", link, full.RebootNeeded(), got.RebootNeeded(), reboot)
		}
	}
}
