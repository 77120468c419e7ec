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

// guestCluster is a hive with the roles cp and w, whose machines nixbench creates as guests of the
// lab's hypervisor.
type guestCluster struct {
	testing.TB
	l      *lab.Lab
	dir    string
	image  string
	output strings.Builder // of all commands but those of runUnlogged
}

// newGuestCluster starts a hypervisor without machines, and builds the image of its machines: one for
// Kubernetes, with these further flags of `lab image`.
func newGuestCluster(t testing.TB, flags ...string) *guestCluster {
	t.Helper()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := append([]string{"container", "--kubernetes", "--size", "6G"}, flags...)
	g := &guestCluster{TB: t, dir: t.TempDir(), image: lab.Image(t, image...)}
	g.l = lab.Hypervisor(t)
	return g
}

// writeHive writes hive.nix with these numbers of nodes, and with settings of nixbench.kubernetes
// for all of them.
func (g *guestCluster) writeHive(controlPlanes, workers int, settings string) {
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
    networking.nameservers = [ "192.168.222.1" ]; # kubelets pass it on to pods
    # Only nodes that are containers need this.
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
    # This makes containerd restart whenever maxPods is set, as a new nixpkgs restarts all services.
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
`, nixpkgs, g.l.URIs["lxc"], g.l.PoolPath, modules, settings, controlPlanes, machine, modules, workers, machine, modules)
	if err := os.WriteFile(filepath.Join(g.dir, "hive.nix"), []byte(text), 0o600); err != nil {
		g.Fatal(err)
	}
}

func (g *guestCluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := g.l.Command(ctx, program, args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+g.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	return cmd
}

// try runs nixbench in the lab's network.
func (g *guestCluster) try(args ...string) (code int, stdout, stderr string) {
	g.Helper()
	begin := time.Now()
	code, stdout, stderr = g.runUnlogged(args...)
	g.output.WriteString(stdout + stderr)
	g.Logf("nixbench %s: exit code %d after %.1f s\n%s%s", strings.Join(args, " "), code, time.Since(begin).Seconds(), stdout, stderr)
	return code, stdout, stderr
}

// watchedOutput calls seen once, as soon as it contains the text.
type watchedOutput struct {
	all  strings.Builder
	text string
	seen func()
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	w.all.Write(p)
	if w.seen != nil && strings.Contains(w.all.String(), w.text) {
		w.seen()
		w.seen = nil
	}
	return len(p), nil
}

// runUntil runs nixbench, calls seen once its output on stdout contains the text, and waits for its end. It reports
// whether seen was called.
func (g *guestCluster) runUntil(text string, seen func(), args ...string) bool {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), 8*time.Minute)
	defer cancel()
	cmd := g.command(ctx, args...)
	called := false
	out := &watchedOutput{text: text, seen: func() { called = true; seen() }}
	cmd.Stdout = out
	err := cmd.Run()
	g.Logf("nixbench %s: %v\n%s", strings.Join(args, " "), err, out.all.String())
	return called
}

// runUnlogged runs nixbench like try, but does not log its output: for commands that print secrets.
func (g *guestCluster) runUnlogged(args ...string) (code int, stdout, stderr string) {
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

func (g *guestCluster) run(args ...string) string {
	g.Helper()
	code, out, _ := g.try(args...)
	if code != 0 {
		g.Fatalf("nixbench %s: exit code %d", strings.Join(args, " "), code)
	}
	return out
}

// tryOn runs a script on a node. It returns what the script prints, and an error if it fails.
func (g *guestCluster) tryOn(node, script string) (string, error) {
	return g.tryOnWithInput(node, "", script)
}

// tryOnWithInput is tryOn with standard input for the script.
func (g *guestCluster) tryOnWithInput(node, stdin, script string) (string, error) {
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	cmd := g.command(ctx, "ssh", node, "--", script)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// runOn runs a script on a node, and returns what it prints. The test ends if the script fails.
func (g *guestCluster) runOn(node, script string) string {
	g.Helper()
	out, err := g.tryOn(node, script)
	if err != nil {
		g.Fatalf("%s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// waitForOutput waits until the script on the node prints want.
func (g *guestCluster) waitForOutput(limit time.Duration, node, script, want string) {
	g.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got, _ = g.tryOn(node, script); got == want {
			return
		}
	}
	g.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

const admin = "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://127.0.0.1:6443 --tls-server-name kubernetes --request-timeout 5s "

// checkNodes checks the cluster's nodes and their status, as in
// `cp-1 Ready;w-1 Ready,SchedulingDisabled;`, through the API of cp-1.
func (g *guestCluster) checkNodes(want string) {
	g.Helper()
	g.checkNodesFrom("cp-1", want)
}

func (g *guestCluster) checkNodesFrom(node, want string) {
	g.Helper()
	if got := g.runOn(node, admin+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`); got != want {
		g.Errorf("the cluster has %q, want %q", got, want)
	}
}

// nodeStates returns a line for each node, which changes when the node is deployed, rebooted or
// recreated, or its kubelet restarts.
func (g *guestCluster) nodeStates(nodes ...string) string {
	g.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, g.runOn(node, `echo $(readlink /nix/var/nix/profiles/system; cat /proc/sys/kernel/random/boot_id; systemctl show -p ActiveEnterTimestampMonotonic --value kubelet)`))
	}
	return strings.Join(all, "\n")
}
