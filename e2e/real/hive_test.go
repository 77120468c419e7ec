package real

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Made once for all tests.
var program, mini string

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &mini)) }

// hive is the folder of a hive whose nodes run a real NixOS.
type hive struct {
	testing.TB
	l    *lab.Lab
	root string // of the repository
	dir  string
	head string // of hive.nix
}

// nixpkgs is a nixpkgs on this computer, and what its packages are made from.
type nixpkgs struct {
	folder, switcher, guest string
}

// needNixpkgs skips the test without a nixpkgs. The flags of `lab image` select the guest whose programs are its packages.
func needNixpkgs(t testing.TB, flags ...string) nixpkgs {
	t.Helper()
	n := nixpkgs{folder: os.Getenv("NIXBENCH_NIXPKGS"), switcher: os.Getenv("NIXBENCH_SWITCH")}
	if n.folder == "" || n.switcher == "" {
		t.Skip("NIXBENCH_NIXPKGS and NIXBENCH_SWITCH are not set; they are the folder of a nixpkgs and its program switch-to-configuration")
	}
	for _, path := range []string{filepath.Join(n.folder, "nixos/lib/eval-config.nix"), n.switcher} {
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	n.guest = lab.Image(t, flags...)
	return n
}

// plain returns the expression of the unchanged package set.
func (n nixpkgs) plain() string {
	return fmt.Sprintf(`import %s { system = "x86_64-linux"; }`, n.folder)
}

// guestPackages returns the expression of the package set whose programs are the guest's.
func (n nixpkgs) guestPackages(root string) string {
	return fmt.Sprintf(`import %s/e2e/real { nixpkgs = %s; switch = %s; guest = "%s"; }`, root, n.folder, n.switcher, n.guest)
}

// newHive returns a hive for the machines of a lab.
func newHive(t testing.TB, l *lab.Lab) *hive {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return &hive{TB: t, l: l, root: root, dir: t.TempDir()}
}

// write writes hive.nix with these nodes.
func (h *hive) write(nodes string) {
	h.Helper()
	h.writeFile("hive.nix", h.head+nodes+"\n}\n")
}

func (h *hive) writeFile(name, text string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

// output is what a run of nixbench has printed.
type output struct {
	testing.TB
	text string
}

// says checks that the output contains these texts.
func (o output) says(want ...string) {
	o.Helper()
	for _, w := range want {
		if !strings.Contains(o.text, w) {
			o.Errorf("no %q in\n%s", w, o.text)
		}
	}
}

// run runs nixbench in the lab's network. It must end with this exit code.
func (h *hive) run(code int, args ...string) output {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := h.l.Command(ctx, program, args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+h.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		h.Fatalf("nixbench %s: %v", strings.Join(args, " "), err)
	}
	h.Logf("nixbench %s: exit %d after %.1f s\n%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), time.Since(began).Seconds(), out)
	if got := cmd.ProcessState.ExitCode(); got != code {
		h.Fatalf("nixbench %s: exit %d, want %d", strings.Join(args, " "), got, code)
	}
	return output{h.TB, string(out)}
}

// on runs a shell script on a machine.
func (h *hive) on(machine, script string) string {
	h.Helper()
	return h.l.Run(h, machine, script)
}
