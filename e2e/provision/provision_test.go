package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// bareHypervisor is a hive whose hypervisor has no machines, networks or pools at first.
type bareHypervisor struct {
	t   *testing.T
	l   *lab.Lab
	dir string

	uris   map[string]string // of the hypervisor, by driver; local sockets by default
	prefix []string          // a command that runs nixbench, with its first arguments
	env    []string          // additional environment variables of nixbench
	nix    string            // additional settings of the hive
}

func newBareHypervisor(t *testing.T, role string) *bareHypervisor {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	l := lab.Hypervisor(t)
	b := &bareHypervisor{t: t, l: l, dir: t.TempDir(), uris: l.URIs}
	b.writeHive(role)
	return b
}

// writeHive writes hive.nix; role is the value of roles.w.
func (b *bareHypervisor) writeHive(role string) {
	b.t.Helper()
	ssh := ""
	if b.driver(role) == "qemu" { // logins to an emulated machine are slow on a busy host
		ssh = `deployment.sshOptions = [ "-o" "ConnectTimeout=60" ];`
	}
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %s { system = "x86_64-linux"; };
  meta.name = "demo";
  cluster.network.name = "demo";
  cluster.hypervisors.default = { uri = "%s"; poolPath = "%s"; };
  defaults = {
    networking.firewall.enable = false;
    system.stateVersion = "25.05";
    %s
  };
  %s
  roles.w = %s;
}
`, nixpkgs, b.uris[b.driver(role)], b.l.PoolPath, ssh, b.nix, role)
	if err := os.WriteFile(filepath.Join(b.dir, "hive.nix"), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bareHypervisor) driver(role string) string {
	if strings.Contains(role, "lab-init") {
		return "lxc"
	}
	return "qemu"
}

// try runs nixbench in the lab's network.
func (b *bareHypervisor) try(args ...string) (code int, stdout, stderr string, took time.Duration) {
	b.t.Helper()
	begin := time.Now()
	argv := slices.Concat(b.prefix, []string{program, "-f", filepath.Join(b.dir, "hive.nix")}, args)
	cmd := b.l.Command(b.t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig), b.env...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), diag.String(), time.Since(begin)
}

// run runs nixbench, which must end with this exit code, and logs how long it took.
func (b *bareHypervisor) run(code int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	got, stdout, stderr, took := b.try(args...)
	if got != code {
		b.t.Fatalf("nixbench %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	b.t.Logf("nixbench %s: %.1fs\n%s", strings.Join(args, " "), took.Seconds(), stderr)
	return stdout, stderr
}

// bootIDs returns the boot ids of the nodes that answer, by name. Each must have its own name.
func (b *bareHypervisor) bootIDs() map[string]string {
	b.t.Helper()
	out, _ := b.run(0, "exec", "--json", "--", "cat", "/proc/sys/kernel/random/boot_id", "/var/lib/nixbench/node.json")
	boots := map[string]string{}
	for line := range strings.Lines(out) {
		var e struct{ Event, Node, Text string }
		if json.Unmarshal([]byte(line), &e) != nil || e.Event != "node-log" {
			continue
		}
		if !strings.HasPrefix(e.Text, "{") {
			boots[e.Node] = e.Text
			continue
		}
		var who struct{ Name string }
		if json.Unmarshal([]byte(e.Text), &who) != nil || who.Name != e.Node {
			b.t.Errorf("%s has the node.json %s", e.Node, e.Text)
		}
	}
	return boots
}

// listObjects returns the machines, networks and disks on the hypervisor.
func (b *bareHypervisor) listObjects(driver string) []string {
	b.t.Helper()
	var out []string
	out = append(out, strings.Fields(b.l.Virsh(b.t, "-c", b.l.URIs[driver], "list --all --name"))...)
	for _, n := range strings.Fields(b.l.Virsh(b.t, "-c", b.l.URIs[driver], "net-list --all --name")) {
		out = append(out, "network "+n)
	}
	_ = filepath.WalkDir(b.l.PoolPath, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	return out
}

var resultLine = regexp.MustCompile(`(?m)^  ([wh]-\d+) +(\S+)`)

// results returns the outcomes of the nodes in the summary of apply, as `w-1 generation`.
func results(stderr string) []string {
	var out []string
	for _, m := range resultLine.FindAllStringSubmatch(stderr, -1) {
		out = append(out, m[1]+" "+m[2])
	}
	slices.Sort(out)
	return out
}

func (b *bareHypervisor) want(what string, got, want []string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Containers are created on an empty hypervisor, scaled up and down, started and resumed again, and
// destroyed.
func TestContainers(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	b := newBareHypervisor(t, fmt.Sprintf(`{
    count = 3; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ ({ runtime, ... }: { environment.etc."endpoint".text = if runtime == null then "none" else runtime.nodes.w-1.address; }) ];
  }`, image))
	before := b.listObjects("lxc")
	b.run(0, "doctor")
	b.run(0, "plan")
	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation", "w-3 generation"})
	explained, _ := b.run(0, "explain")
	t.Log(explained)
	out, _ := b.run(0, "exec", "--on", "w-2", "--", "cat", "/etc/endpoint")
	if !strings.Contains(out, "192.168.222.2") {
		t.Errorf("the system of w-2 lacks the endpoint's address: %s", out)
	}
	b.run(0, "ssh", "w-3", "--", "true")
	_, stderr = b.run(0, "apply")
	b.want("apply again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 unchanged"})

	first := b.bootIDs()
	_, stderr = b.run(0, "apply", "--set", "roles.w.count=5")
	b.want("up", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 unchanged", "w-4 generation", "w-5 generation"})
	_, stderr = b.run(2, "apply", "--set", "roles.w.count=2")
	if !strings.Contains(stderr, "remove w-5 on default") || !strings.Contains(stderr, "--yes") {
		t.Errorf("the removal needs no confirmation: %s", stderr)
	}
	_, stderr = b.run(0, "apply", "--set", "roles.w.count=2", "--yes")
	b.want("down", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 removed", "w-4 removed", "w-5 removed"})
	b.writeHive(strings.Replace(b.readRole(), "count = 3", "count = 2", 1))
	after := b.bootIDs()
	if len(after) != 2 || after["w-1"] != first["w-1"] || after["w-2"] != first["w-2"] {
		t.Errorf("boots: before %v, after %v", first, after)
	}
	// stop shuts a machine down, and start boots the same one again. On a busy computer, libvirt 9.0 can miss the event with the
	// process of a container's init, and refuses to ask this container to shut down: then --force stops it.
	_, stderr = b.run(0, "stop", "--force", "--on", "w-2")
	b.want("stop", results(stderr), []string{"w-2 stopped"})
	out, _ = b.run(0, "status")
	if !regexp.MustCompile(`(?m)^w-2 +not booted .* off$`).MatchString(out) {
		t.Errorf("status after stop: %s", out)
	}
	_, stderr = b.run(0, "start")
	b.want("start", results(stderr), []string{"w-1 unchanged", "w-2 started"})
	if now := b.bootIDs(); now["w-1"] != first["w-1"] || now["w-2"] == first["w-2"] || now["w-2"] == "" {
		t.Errorf("boots: before %v, after stop and start %v", first, now)
	}
	first = b.bootIDs()
	b.attachConsole("w-2")

	// A machine that was shut down is started, and one that is paused is resumed.
	b.l.Virsh(t, "-c", b.l.URIs["lxc"], "destroy demo-w-1; suspend demo-w-2")
	out, _ = b.run(0, "status")
	if !regexp.MustCompile(`(?m)^w-1 +not booted .* off$`).MatchString(out) || !regexp.MustCompile(`(?m)^w-2 +not booted .* paused$`).MatchString(out) {
		t.Errorf("status: %s", out)
	}
	_, stderr = b.run(0, "apply")
	b.want("run again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	for _, want := range []string{"warning: start w-1 on default: it is off", "warning: resume w-2 on default: it is paused", "1 started, 1 resumed"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("apply does not say %q", want)
		}
	}
	again := b.bootIDs()
	if again["w-1"] == first["w-1"] || again["w-2"] != first["w-2"] {
		t.Errorf("boots: before %v, run again %v", first, again)
	}
	b.run(0, "status")
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("lxc"), before)
	b.run(0, "destroy", "--yes")
}

// attachConsole connects a terminal to the console of a node until a line appears that the node writes there, and
// detaches. It also prints the console log without a terminal.
func (b *bareHypervisor) attachConsole(node string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	// script runs the command on a terminal.
	cmd := b.l.Command(ctx, "script", "-qefc", program+" -f "+filepath.Join(b.dir, "hive.nix")+" console "+node, "/dev/null")
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	keys, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	screen, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var shown strings.Builder
	wait := func(text string) {
		for buf := make([]byte, 1024); !strings.Contains(shown.String(), text); {
			n, err := screen.Read(buf)
			shown.Write(buf[:n])
			if err != nil {
				b.t.Fatalf("the terminal does not show %q: %v\n%s", text, err, shown.String())
			}
		}
	}
	wait("Ctrl-] detaches")
	b.run(0, "exec", "--on", node, "--", "sleep 1; echo a line on the console >/dev/console")
	wait("a line on the console")
	_, _ = keys.Write([]byte{0x1d})
	wait("detached from the console of " + node)
	if err := cmd.Wait(); err != nil {
		b.t.Errorf("console: %v\n%s", err, shown.String())
	}
	b.run(0, "console", node)
}

// readRole returns the value of roles.w in hive.nix.
func (b *bareHypervisor) readRole() string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "hive.nix"))
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "roles.w = ")
	return strings.TrimSuffix(strings.TrimSpace(rest), ";\n}")
}
