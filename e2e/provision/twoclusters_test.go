package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Two clusters that init has written into two folders are created side by side on one hypervisor. One of them is destroyed,
// and the other one stays. Their hives are those of init, except that each has one container without Kubernetes.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	l := lab.Hypervisor(t)
	top := t.TempDir()
	clusters := map[string]*bareHypervisor{}
	for _, name := range []string{"red", "blue"} {
		dir := filepath.Join(top, name)
		if out, err := l.Command(t.Context(), program, "init", "--dir", dir).CombinedOutput(); err != nil {
			t.Fatalf("init: %v\n%s", err, out)
		}
		// try uses hive.nix, so the hive of init gets another name.
		if err := os.Rename(filepath.Join(dir, "hive.nix"), filepath.Join(dir, "init.nix")); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`let hive = import ./init.nix { nixpkgs = import %s { system = "x86_64-linux"; }; }; in
hive // {
  cluster = hive.cluster // { hypervisors.default = { uri = "%s"; poolPath = "%s"; }; endpoint.role = "worker"; };
  defaults = { networking.firewall.enable = false; system.stateVersion = "25.05"; };
  roles.worker = hive.roles.worker // { count = 1; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init"; modules = [ ]; };
}
`, nixpkgs, l.URIs["lxc"], l.PoolPath, image)
		if err := os.WriteFile(filepath.Join(dir, "hive.nix"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		clusters[name] = &bareHypervisor{t: t, l: l, dir: dir, uris: l.URIs}
	}
	red, blue := clusters["red"], clusters["blue"]
	before := red.listObjects("lxc")

	red.run(0, "apply")
	blue.run(0, "apply")
	var objects []string
	for _, o := range red.listObjects("lxc") {
		if !strings.HasPrefix(o, "/") {
			objects = append(objects, o)
		}
	}
	slices.Sort(objects)
	red.want("objects", objects, []string{"blue-worker-1", "network blue", "network red", "red-worker-1"})
	boots := map[string]bool{}
	for _, b := range clusters {
		for _, id := range b.bootIDs() {
			boots[id] = true
		}
	}
	if len(boots) != 2 {
		t.Errorf("the clusters have the machines %v, want one each", boots)
	}

	red.run(0, "destroy", "--yes")
	_, stderr := blue.run(0, "apply")
	if !strings.Contains(stderr, "1 unchanged") {
		t.Errorf("apply of blue: %s", stderr)
	}
	blue.run(0, "destroy", "--yes")
	red.want("left", red.listObjects("lxc"), before)
}
