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
	said    strings.Builder // by all commands
}

// newGround has machines of Kubernetes, and what else these flags of the lab ask for.
func newGround(t *testing.T, flags ...string) *ground {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := append([]string{"--kubernetes", "--size", "6G"}, flags...)
	g := &ground{T: t, dir: t.TempDir(), image: lab.Image(t, "container", image...)}
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
  defaults = { pkgs, config, ... }: {
    imports = [ %s ];
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    networking.nameservers = [ "192.168.222.1" ]; # kubelets hand it on to pods
    # What containers need that are nodes; a machine does not.
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
    # Changes together with a setting of the kubelet, as everything does with a new nixpkgs.
    virtualisation.containerd.settings.metrics.grpc_histogram = config.nixbench.kubernetes.settings.kubelet ? maxPods;
    environment.etc."ssl/certs/ca-certificates.crt".text = "authorities of these nodes\n";
    virtualisation.cri-o.settings.crio.runtime = { default_runtime = "runc"; runtimes.runc.runtime_path = "/usr/sbin/lab-runc"; };
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

func (g *ground) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := g.l.Command(ctx, g.program, args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+g.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	return cmd
}

// try runs nixbench in the lab's network.
func (g *ground) try(args ...string) (code int, stdout, stderr string) {
	g.Helper()
	begin := time.Now()
	code, stdout, stderr = g.quietly(args...)
	g.said.WriteString(stdout + stderr)
	g.Logf("nixbench %s: exit code %d after %.1f s\n%s%s", strings.Join(args, " "), code, time.Since(begin).Seconds(), stdout, stderr)
	return code, stdout, stderr
}

// quietly is for what prints secrets.
func (g *ground) quietly(args ...string) (code int, stdout, stderr string) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), 8*time.Minute)
	defer cancel()
	cmd := g.command(ctx, args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.Fatal(err)
	}
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

// ask runs a script on a node, which may fail, and gives what it prints.
func (g *ground) ask(node, script string) (string, error) {
	return g.tell(node, "", script)
}

// tell also gives the script something to read.
func (g *ground) tell(node, stdin, script string) (string, error) {
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	cmd := g.command(ctx, "ssh", node, "--", script)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// on runs a script on a node and gives what it prints.
func (g *ground) on(node, script string) string {
	g.Helper()
	out, err := g.ask(node, script)
	if err != nil {
		g.Fatalf("%s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// wait waits until the script on the node prints want.
func (g *ground) wait(limit time.Duration, node, script, want string) {
	g.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got, _ = g.ask(node, script); got == want {
			return
		}
	}
	g.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

const admin = "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://127.0.0.1:6443 --tls-server-name kubernetes --request-timeout 5s "

// nodes wants exactly these nodes, as `cp-1 Ready;w-1 Ready,SchedulingDisabled;`.
func (g *ground) nodes(want string) {
	g.Helper()
	g.nodesFrom("cp-1", want)
}

func (g *ground) nodesFrom(node, want string) {
	g.Helper()
	if got := g.on(node, admin+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`); got != want {
		g.Errorf("the cluster has %q, want %q", got, want)
	}
}

// untouched is what changes when a node is deployed, restarted or made anew.
func (g *ground) untouched(nodes ...string) string {
	g.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, g.on(node, `echo $(readlink /nix/var/nix/profiles/system; cat /proc/sys/kernel/random/boot_id; systemctl show -p ActiveEnterTimestampMonotonic --value kubelet)`))
	}
	return strings.Join(all, "\n")
}
