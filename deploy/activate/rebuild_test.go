package activate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tests --activator nixos-rebuild with the stand-in, and with the real program of NIXBENCH_NIXPKGS.
func TestNixosRebuild(t *testing.T) {
	t.Run("stand-in", func(t *testing.T) {
		testNixosRebuild(t, func(n *standIn) { n.install("bin/nixos-rebuild", "run/wrappers/bin/nixos-rebuild", "") })
	})
	t.Run("real", func(t *testing.T) {
		nixpkgs, python := os.Getenv("NIXBENCH_NIXPKGS"), findPython(t)
		if nixpkgs == "" || python == "" {
			t.Skip("needs NIXBENCH_NIXPKGS, the path of a complete nixpkgs, and Python 3.12 or later")
		}
		testNixosRebuild(t, func(n *standIn) { n.installNixosRebuild(nixpkgs, python) })
	})
}

func testNixosRebuild(t *testing.T, install func(*standIn)) {
	for name, test := range map[string]func(*testing.T, *standIn, Request){
		"switch": func(t *testing.T, n *standIn, r Request) {
			if res, err := n.activate(r); err != nil || res.Outcome != Committed || res.After.Generation != 2 {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new test", "new boot")
			if got := n.read("world/loader"); got != "0\n" {
				t.Errorf("NIXOS_INSTALL_BOOTLOADER was %q", got)
			}
		},
		"no rollback": func(t *testing.T, n *standIn, r Request) {
			r.Confirm = 0
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
			n.is(n.newPath, n.newPath, "new switch")
		},
		"unit fails": func(t *testing.T, n *standIn, r Request) {
			n.onNew("fails web.service; reports 'warning: the following units failed: web.service'")
			n.rollsBack(r, reasonSwitch, "unit web.service failed")
		},
		"script fails": func(t *testing.T, n *standIn, r Request) {
			n.onNew("echo 'Failed to run activate script' >&2; code=2")
			n.rollsBack(r, reasonSwitch, "the activation script failed (exit 2)")
		},
		"specialisation": func(t *testing.T, n *standIn, r Request) {
			special := strings.TrimPrefix(n.newPath, n.root+"/") + "/specialisation/quiet"
			n.install("switch-to-configuration", special+"/bin/switch-to-configuration", filepath.Join(n.root, special))
			r.Specialisation = "quiet"
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
			n.is(filepath.Join(n.root, special), n.newPath, "quiet test", "new boot")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newStandIn(t)
			install(n)
			r := n.request()
			r.Activator = NixosRebuild
			test(t, n, r)
		})
	}
}

// A nixos-rebuild without the options that the node's script needs is refused before the switch.
func TestNixosRebuildWithoutStorePath(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	n.write("run/wrappers/bin/nixos-rebuild", "#!/bin/sh\necho \"nixos-rebuild: unknown option \\`$1'\" >&2\nexit 1\n")
	if err := os.Chmod(filepath.Join(n.root, "run/wrappers/bin/nixos-rebuild"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := n.request()
	r.Activator = NixosRebuild
	if res, err := n.activate(r); err == nil || !strings.Contains(err.Error(), "no nixos-rebuild with --store-path") {
		t.Error(res, err)
	}
	n.is(n.oldPath, n.oldPath)
}

// installNixosRebuild installs the source of the real program, with the values that its package sets. As on a node
// without documentation, there is no manual.
func (n *standIn) installNixosRebuild(nixpkgs, python string) {
	n.t.Helper()
	lib := filepath.Join(n.root, "lib")
	if err := os.CopyFS(filepath.Join(lib, "nixos_rebuild"), os.DirFS(filepath.Join(nixpkgs, "pkgs/by-name/ni/nixos-rebuild-ng/src/nixos_rebuild"))); err != nil {
		n.t.Fatal(err)
	}
	constants := n.read("lib/nixos_rebuild/constants.py")
	n.write("lib/nixos_rebuild/constants.py", strings.NewReplacer("@executable@", "nixos-rebuild", "@withShellFiles@", "true").Replace(constants))
	for name, script := range map[string]string{
		// This machine's systemd must not switch anything.
		"nixos-rebuild": "PYTHONPATH=" + lib + " PYTHONDONTWRITEBYTECODE=1 NIXOS_REBUILD_NO_SYSTEMD_RUN=1 exec " + python + ` -m nixos_rebuild "$@"`,
		"man":           `echo "No manual entry for $2 in section $1" >&2; exit 16`,
	} {
		n.write("run/wrappers/bin/"+name, "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(filepath.Join(n.root, "run/wrappers/bin", name), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
}

// findPython returns the path of a Python that can run nixos-rebuild, or an empty string.
func findPython(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.1[2-9]*/bin/python3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"python3", "python3.14", "python3.13", "python3.12"}, found...) {
		out, err := exec.Command(name, "-c", "import sys; assert sys.version_info >= (3, 12); print(sys.executable)").Output()
		if err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return ""
}
