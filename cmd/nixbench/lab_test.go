package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// bench is a hive whose nodes are machines of a lab.
type bench struct {
	t    *testing.T
	l    *lab.Lab
	dir  string
	bin  string
	mini string
}

func newLabBench(t *testing.T, l *lab.Lab) *bench {
	b := &bench{t: t, l: l, dir: t.TempDir(), mini: fixture.Nixpkgs(t)}
	b.bin = filepath.Join(t.TempDir(), "nixbench")
	if out, err := exec.Command("go", "build", "-o", b.bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return b
}

// hive writes one in which every machine has the settings; those of m1 have more.
func (b *bench) hive(settings, m1 string) {
	b.t.Helper()
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %s { system = "x86_64-linux"; };
  defaults = { name, ... }: {
    networking.hostName = name;
    networking.firewall.enable = false;
    system.stateVersion = "25.05";
    deployment.sshOptions = [ "-F" "%s" ];
    %s
  };
  m1 = { %s };
  m2 = { };
}
`, b.mini, b.l.SSHConfig(), settings, m1)
	if err := os.WriteFile(filepath.Join(b.dir, "hive.nix"), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// run runs nixbench in the lab's network and wants an exit code.
func (b *bench) run(code int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	cmd := b.l.Command(b.t.Context(), b.bin, append([]string{"-f", filepath.Join(b.dir, "hive.nix")}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code {
		b.t.Fatalf("nixbench %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, out.String(), diag.String())
	}
	return out.String(), diag.String()
}

// result is what a command says with --json.
func result[T any](b *bench, code int, args ...string) T {
	b.t.Helper()
	out, _ := b.run(code, append(args, "--json")...)
	for line := range strings.Lines(out) {
		var r struct {
			Result *T `json:"result"`
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Result != nil {
			return *r.Result
		}
	}
	b.t.Fatalf("nixbench %s gave no result:\n%s", strings.Join(args, " "), out)
	panic("unreachable")
}

func (b *bench) status(code int, args ...string) map[string]deploy.Status {
	b.t.Helper()
	out := map[string]deploy.Status{}
	for _, s := range result[[]deploy.Status](b, code, append([]string{"status"}, args...)...) {
		out[s.Node] = s
	}
	return out
}

func (b *bench) plan(args ...string) map[string]deploy.Preview {
	b.t.Helper()
	out := map[string]deploy.Preview{}
	for _, p := range result[[]deploy.Preview](b, 0, append([]string{"plan"}, args...)...) {
		out[p.Node] = p
	}
	return out
}

func (b *bench) equal(what string, got, want any) {
	b.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestLabCommands is a day in the life of two machines.
func TestLabCommands(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	b := newLabBench(t, lab.Start(t, 2))
	const one = `environment.etc."x".text = "one"; boot.kernelParams = [ "v=1" ];
      systemd.services.extra = { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; RemainAfterExit = true; }; script = "echo one"; };`
	const key = `deployment.keys.token.text = "t0ps3cret";`
	b.hive(one, key)

	// Machines that nobody has deployed to.
	b.equal("before", b.status(0)["m1"].System, deploy.NeverDeployed)
	p := b.plan()
	b.equal("plan m1", p["m1"].Action, deploy.WouldFirst)
	b.equal("keys", p["m1"].Keys.Upload, []string{"token"})
	if p["m1"].Copy.Paths == 0 || p["m1"].Copy.Bytes == 0 {
		t.Errorf("plan says that nothing is to be copied: %+v", p["m1"].Copy)
	}
	b.equal("plan wrote", b.l.Run(t, "m1", "ls -d /nix/var/nix/profiles/system* /run/keys/token /var/lib/nixbench 2>/dev/null; ls -d "+p["m1"].To+" 2>/dev/null || :"), "")

	// Deployed, and booted into it.
	b.run(0, "apply")
	b.run(2, "reboot")
	b.run(0, "reboot", "--yes")
	first := b.status(0, "--check")
	b.equal("m1", []any{first["m1"].System, first["m1"].Generation, first["m1"].Reboot, first["m1"].Current == p["m1"].To}, []any{deploy.AsDeployed, 1, false, true})
	b.run(0, "upload-keys")
	p = b.plan()
	b.equal("plan", []string{p["m1"].Action, p["m2"].Action}, []string{deploy.WouldNothing, deploy.WouldNothing})
	out, _ := b.run(0, "reboot", "--yes", "--if-needed")
	b.equal("no reboot", out, "no node needs a reboot\n")

	// A change: a unit, and the kernel's parameters.
	b.hive(strings.NewReplacer(`"one"`, `"two"`, "echo one", "echo two", "v=1", "v=2").Replace(one), key)
	p = b.plan("--units")
	b.equal("plan", []any{p["m1"].Action, *p["m1"].Reboot, p["m1"].Keys.Upload, p["m1"].Units.Start}, []any{deploy.WouldSwitch, true, []string{}, []string{"extra.service"}})
	drift := b.status(0, "--drift")
	b.equal("drift", []any{drift["m1"].System, drift["m1"].Wanted}, []any{deploy.Drifted, p["m1"].To})
	b.equal("still", b.l.Run(t, "m1", "cat /etc/x"), "one")
	b.run(0, "apply", "--on", "m1")
	second := b.status(0, "--drift")
	b.equal("now", []string{second["m1"].System, second["m2"].System}, []string{deploy.UpToDate, deploy.Drifted})
	b.equal("reboot needed", []bool{second["m1"].Reboot, second["m2"].Reboot}, []bool{true, false})

	// Only m1 needs a reboot.
	boot := b.l.BootID(t, "m2")
	_, diag := b.run(0, "reboot", "--yes", "--if-needed")
	if !strings.Contains(diag, "1 rebooted, 1 unchanged") {
		t.Errorf("reboot --if-needed says:\n%s", diag)
	}
	b.equal("m2 went on", b.l.BootID(t, "m2"), boot)
	out, _ = b.run(0, "generations", "--on", "m1")
	b.equal("generations", strings.Count(out, "current, booted, default"), 1)

	// Back: m1 to what it ran before the last run, while m2 stays; and forth again.
	b.run(0, "rollback", "--yes")
	back := b.status(0)
	b.equal("rolled back", []any{back["m1"].Current == first["m1"].Current, back["m1"].Boots, back["m2"].Generation, back["m1"].System}, []any{true, 1, 1, deploy.AsDeployed})
	b.equal("boots", b.l.Run(t, "m1", "cat /etc/x /boot/nixbench-default"), "one"+first["m1"].Current)
	b.run(0, "rollback", "--on", "m1")
	b.equal("rolled back twice", b.status(0)["m1"].Generation, 2)
	b.run(0, "rollback", "--on", "m1", "--to", "1")
	b.equal("to 1", b.status(0)["m1"].Current, first["m1"].Current)
	_, diag = b.run(8, "rollback", "--on", "m1", "--to", "7")
	if !strings.Contains(diag, "the node has no generation 7") {
		t.Errorf("rollback --to 7 says:\n%s", diag)
	}

	// Somebody works by hand, and a unit fails.
	b.l.Run(t, "m1", second["m1"].Current+"/bin/switch-to-configuration test; systemd-run -q --unit=bad false; sleep 0.5")
	hand := b.status(9, "--check")
	b.equal("by hand", []any{hand["m1"].System, hand["m1"].FailedUnits, hand["m2"].System}, []any{deploy.OtherSystem, []string{"bad.service"}, deploy.AsDeployed})

	// A machine without sshd: the others are dealt with.
	b.l.Run(t, "m2", "systemctl stop ssh.socket ssh.service || systemctl stop ssh.service")
	b.equal("off", b.status(6)["m2"].System, deploy.Unreachable)
	_, diag = b.run(6, "rollback", "--to", "2", "--yes")
	if !strings.Contains(diag, "m2: ") {
		t.Errorf("rollback does not name m2:\n%s", diag)
	}
	b.equal("m1 went on", b.status(6)["m1"].Boots, 2)
}
