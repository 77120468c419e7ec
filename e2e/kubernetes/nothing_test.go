package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// ground is a hive of roles on an empty hypervisor.
type ground struct {
	*testing.T
	l       *lab.Lab
	dir     string
	program string
	image   string
}

func newGround(t *testing.T) *ground {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	g := &ground{T: t, dir: t.TempDir(), image: lab.Image(t, "container", "--kubernetes", "--size", "6G")}
	g.l = lab.Hypervisor(t)
	g.program = filepath.Join(g.dir, "nixbench")
	if out, err := exec.Command("go", "build", "-o", g.program, "../../cmd/nixbench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return g
}

// hive writes hive.nix with so many nodes, and more settings of all of them.
func (g *ground) hive(controlPlanes, workers int, settings string) {
	g.Helper()
	modules, err := filepath.Abs("../../modules/kubernetes")
	if err != nil {
		g.Fatal(err)
	}
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init-kubernetes"; vcpus = 2; memory = "3G";
    xml = "<domain><features><capabilities policy='allow'/></features><devices><hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev></devices></domain>";`, g.image)
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %s { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "%s"; poolPath = "%s"; };
  cluster.endpoint.role = "cp";
  defaults = {
    imports = [ %s ];
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    networking.nameservers = [ "192.168.222.1" ]; # kubelets hand it on to pods
    # What containers need that are nodes; a machine does not.
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
    nixbench.kubernetes = {
      settings = {
        kubelet = {
          failSwapOn = false;
          failCgroupV1 = false;
          imageGCHighThresholdPercent = 100;
          evictionHard = { "memory.available" = "100Mi"; "nodefs.available" = "1%%"; "nodefs.inodesFree" = "1%%"; "imagefs.available" = "1%%"; };
        };
        proxy.conntrack = { maxPerCore = 0; min = 0; };
      };
      probe = { image = "localhost/probe:1"; serve = [ "/probe" "serve" ]; get = [ "/probe" "get" ]; };
      encryptionAtRest.enable = true;
      %s
    };
  };
  roles.cp = {
    count = %d; %s
    modules = [ %s/control-plane.nix ];
  };
  roles.w = {
    count = %d; %s
    modules = [ %s/worker.nix ];
  };
}
`, fixture.Nixpkgs(g), g.l.URI("lxc"), g.l.PoolPath(), modules, settings, controlPlanes, machine, modules, workers, machine, modules)
	if err := os.WriteFile(filepath.Join(g.dir, "hive.nix"), []byte(text), 0o600); err != nil {
		g.Fatal(err)
	}
}

// try runs nixbench in the lab's network.
func (g *ground) try(args ...string) (code int, stdout, stderr string) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), 8*time.Minute)
	defer cancel()
	begin := time.Now()
	cmd := g.l.Command(ctx, g.program, args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+g.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.Fatal(err)
	}
	g.Logf("nixbench %s: exit code %d after %.1f s\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), time.Since(begin).Seconds(), out.String(), diag.String())
	return cmd.ProcessState.ExitCode(), out.String(), diag.String()
}

func (g *ground) run(args ...string) string {
	g.Helper()
	code, out, _ := g.try(args...)
	if code != 0 {
		g.Fatalf("nixbench %s: exit code %d", strings.Join(args, " "), code)
	}
	return out
}

// on runs a script on a node and gives what it prints.
func (g *ground) on(node, script string) string {
	g.Helper()
	return g.run("ssh", node, "--", script)
}

const admin = "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://127.0.0.1:6443 --tls-server-name kubernetes "

func (g *ground) nodes(want string) {
	g.Helper()
	if got := strings.TrimSpace(g.on("cp-1", admin+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`)); got != want {
		g.Errorf("the cluster has %q, want %q", got, want)
	}
}

// From an empty hypervisor to a cluster, up, down, changed under load, and nothing again.
func TestFromNothing(t *testing.T) {
	g := newGround(t)
	g.hive(1, 2, "")
	began := time.Now()
	g.run("apply")
	t.Logf("from nothing to 1 + 2 nodes Ready: %.1f s", time.Since(began).Seconds())
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	g.run("explain")
	g.run("check", "--deep")
	g.timestamps()

	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 3 {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	g.run("apply", "--set", "roles.w.count=4")
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;w-3 Ready;w-4 Ready;")
	g.run("apply", "--set", "roles.w.count=1", "--yes")
	g.nodes("cp-1 Ready;w-1 Ready;")

	g.run("apply")
	g.run("destroy", "--yes")
}

// timestamps shows that workers do not wait for what the control plane prints.
func (g *ground) timestamps() {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		g.on(node, `journalctl -o short-precise --no-pager -u nixbench-kubernetes | grep -E ': (waiting|init|join|importing|ready)' | head -n 12`)
	}
}
