package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// labHive is a hive whose nodes are machines of a lab.
type labHive struct {
	t    *testing.T
	l    *lab.Lab
	dir  string
	bin  string
	mini string
}

func newLabHive(t *testing.T, l *lab.Lab) *labHive {
	b := &labHive{t: t, l: l, dir: t.TempDir(), mini: fixture.Nixpkgs(t)}
	b.bin = filepath.Join(t.TempDir(), "nixbench")
	if out, err := exec.Command("go", "build", "-o", b.bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return b
}

// write writes a hive in which all machines have the settings, and m1 additionally has those in m1.
func (b *labHive) write(settings, m1 string) {
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
`, b.mini, b.l.SSHConfig, settings, m1)
	if err := os.WriteFile(filepath.Join(b.dir, "hive.nix"), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// run runs nixbench in the lab's network and requires the exit code.
func (b *labHive) run(code int, args ...string) (stdout, stderr string) {
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

// runJSON returns the result of a command with --json.
func runJSON[T any](b *labHive, code int, args ...string) T {
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

func (b *labHive) status(code int, args ...string) map[string]inspect.Status {
	b.t.Helper()
	out := map[string]inspect.Status{}
	for _, s := range runJSON[[]inspect.Status](b, code, append([]string{"status"}, args...)...) {
		out[s.Node] = s
	}
	return out
}

func (b *labHive) plan(args ...string) map[string]stages.Preview {
	b.t.Helper()
	out := map[string]stages.Preview{}
	for _, p := range runJSON[[]stages.Preview](b, 0, append([]string{"plan"}, args...)...) {
		out[p.Node] = p
	}
	return out
}

func (b *labHive) checkEqual(what string, got, want any) {
	b.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// compareWithNix requires each package that Nix's own comparison of two closures shows in the output of plan.
func (b *labHive) compareWithNix(from, to, shown string) {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "nix", "--extra-experimental-features", "nix-command", "store", "diff-closures", from, to)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	b.t.Logf("nix store diff-closures:\n%s\nnixbench plan:\n%s", out, shown)
	for line := range strings.Lines(string(out)) {
		if name, _, found := strings.Cut(line, ": "); found && !strings.Contains(shown, " "+name+" ") && !strings.Contains(shown, " "+name+",") {
			b.t.Errorf("plan does not show the package %s", name)
		}
	}
}

// followJournal follows the journal of m1 until a line appears, and interrupts nixbench. No process must remain on m1.
func (b *labHive) followJournal() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	b.l.Run(b.t, "m1", "systemd-run -q --unit=talks sh -c 'while sleep 0.2; do echo a new line; done'")
	defer b.l.Run(b.t, "m1", "systemctl stop talks")
	cmd := b.l.NetworkCommand(ctx, b.bin, "logs", "--file", filepath.Join(b.dir, "hive.nix"), "-f", "-n", "0", "m1", "talks")
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasSuffix(line, "]: a new line\n") {
		b.t.Errorf("logs -f printed %q, %v", line, err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	b.checkEqual("exit code of logs -f", cmd.ProcessState.ExitCode(), 0)
	b.checkEqual("journalctl goes on", b.l.Run(b.t, "m1", "pgrep -x journalctl || :"), "")
}

// TestLabCommands uses most commands in turn on two machines.
func TestLabCommands(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	b := newLabHive(t, lab.Start(t, 2))
	// The package "tool" has a version, and 2 MB more in the second system.
	const tool = `environment.etc."tool".source = builtins.toFile "tool-1.0" "small";`
	const one = tool + `environment.etc."x".text = "one"; boot.kernelParams = [ "v=1" ];
      systemd.services.extra = { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; RemainAfterExit = true; }; script = "echo one"; };`
	change := strings.NewReplacer(`"one"`, `"two"`, "echo one", "echo two", "v=1", "v=2", `"tool-1.0" "small"`, `"tool-1.1" (toString (builtins.genList (n: n) 20000))`)
	const key = `deployment.keys.token.text = "t0ps3cret";`
	b.write(one, key)

	// Machines before the first deployment.
	b.checkEqual("before", b.status(0)["m1"].System, inspect.NeverDeployed)
	p := b.plan()
	b.checkEqual("plan m1", p["m1"].Action, plan.WouldFirst)
	b.checkEqual("keys", p["m1"].Keys.Upload, []string{"token"})
	if p["m1"].Copy.Paths == 0 || p["m1"].Copy.Bytes == 0 {
		t.Errorf("plan says that nothing is to be copied: %+v", p["m1"].Copy)
	}
	b.checkEqual("plan wrote", b.l.Run(t, "m1", "ls -d /nix/var/nix/profiles/system* /run/keys/token /var/lib/nixbench 2>/dev/null; ls -d "+p["m1"].To+" 2>/dev/null || :"), "")

	// Deploy, and boot into the system.
	b.run(0, "apply")
	b.run(2, "reboot")
	b.run(0, "reboot", "--yes")
	first := b.status(0, "--check")
	if up := first["m1"].Uptime; up <= 0 || up > 300 { // that of the container, and not of its host
		t.Errorf("up for %d s right after a reboot", up)
	}
	b.checkEqual("m1", []any{first["m1"].System, first["m1"].Generation, first["m1"].Reboot, first["m1"].Current == p["m1"].To}, []any{inspect.AsDeployed, 1, false, true})
	for name, s := range b.status(0, "-o", "wide") {
		f := s.Figures
		if s.Address == "" || f == nil || f.Processors < 1 || f.ProcessorsUsed == nil || f.MemoryUsed <= 0 || f.MemoryUsed >= f.Memory || f.DiskUsed <= 0 || f.DiskUsed >= f.Disk {
			t.Errorf("%s at %q has the figures %+v", name, s.Address, f)
		}
	}
	out, _ := b.run(0, "logs", "m1", "extra")
	b.checkEqual("the last line of a unit's journal", strings.Contains(out, "]: one\n") && !strings.Contains(out, "sshd"), true)
	out, _ = b.run(0, "logs", "--on", "*", "-n", "1", "extra")
	b.checkEqual("journals of two nodes", strings.Contains(out, "m1 | ") && strings.Contains(out, "m2 | "), true)
	b.followJournal()
	b.run(0, "upload-keys")
	p = b.plan()
	b.checkEqual("plan", []string{p["m1"].Action, p["m2"].Action}, []string{plan.WouldNothing, plan.WouldNothing})
	out, _ = b.run(0, "reboot", "--yes", "--if-needed")
	b.checkEqual("no reboot", out, "no node needs a reboot\n")

	// Change a unit and the kernel's parameters.
	b.write(change.Replace(one), key)
	p = b.plan()
	b.checkEqual("plan", []any{p["m1"].Action, *p["m1"].Reboot, p["m1"].Keys.Upload}, []any{plan.WouldSwitch, true, []string{}})
	if diff := p["m1"].Diff; diff == nil || !reflect.DeepEqual(diff, p["m2"].Diff) {
		t.Errorf("the difference of the closures: %+v, %+v", diff, p["m2"].Diff)
	}
	out, _ = b.run(0, "plan")
	t.Log(out)
	if !strings.Contains(out, "\nm1, m2: closure +") || !strings.Contains(out, "  units: ~ extra.service\n") || !strings.Contains(out, "  /etc: ~ tool, ~ x\n") {
		t.Errorf("plan does not show the difference once:\n%s", out)
	}
	drift := b.status(0, "--drift")
	b.checkEqual("drift", []any{drift["m1"].System, drift["m1"].Wanted}, []any{inspect.Drifted, p["m1"].To})
	b.checkEqual("still", b.l.Run(t, "m1", "cat /etc/x"), "one")
	b.compareWithNix(p["m1"].From, p["m1"].To, out)
	b.run(11, "plan", "--exit-code")

	// Save the plan of m1 and execute it. The record of the run has the difference.
	file := filepath.Join(b.dir, "m1.plan")
	b.run(0, "plan", "--on", "m1", "--out", file)
	saved, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(saved), "t0ps3cret") {
		t.Errorf("the plan file: %v\n%s", err, saved)
	}
	b.run(0, "apply", file)
	b.checkEqual("executed", b.l.Run(t, "m1", "cat /etc/x")+b.l.Run(t, "m2", "cat /etc/x"), "twoone")
	shown, _ := b.run(0, "runs", "last")
	for _, want := range []string{"units: ~ extra.service", "/etc: ~ tool, ~ x"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the run lacks %s", want)
		}
	}
	second := b.status(0, "--drift")
	b.checkEqual("now", []string{second["m1"].System, second["m2"].System}, []string{inspect.UpToDate, inspect.Drifted})
	b.checkEqual("reboot needed", []bool{second["m1"].Reboot, second["m2"].Reboot}, []bool{true, false})

	// Reboot: only m1 needs it.
	boot := b.l.BootID(t, "m2")
	_, diag := b.run(0, "reboot", "--yes", "--if-needed")
	if !strings.Contains(diag, "1 rebooted, 1 unchanged") {
		t.Errorf("reboot --if-needed says:\n%s", diag)
	}
	b.checkEqual("m2 went on", b.l.BootID(t, "m2"), boot)
	out, _ = b.run(0, "generations", "--on", "m1")
	b.checkEqual("generations", strings.Count(out, "current, booted, default"), 1)

	// Roll back m1 to the system before the last run; m2 is unchanged. Then roll back the rollback.
	b.run(0, "rollback", "--yes")
	back := b.status(0)
	b.checkEqual("rolled back", []any{back["m1"].Current == first["m1"].Current, back["m1"].Boots, back["m2"].Generation, back["m1"].System}, []any{true, 1, 1, inspect.AsDeployed})
	b.checkEqual("boots", b.l.Run(t, "m1", "cat /etc/x /boot/nixbench-default"), "one"+first["m1"].Current)
	b.run(0, "rollback", "--on", "m1")
	b.checkEqual("rolled back twice", b.status(0)["m1"].Generation, 2)
	b.l.Run(t, "m1", "rm /run/keys/token")
	_, diag = b.run(12, "apply", file)
	if !strings.Contains(diag, "m1: it would also change now: key token") {
		t.Errorf("apply of an executed plan to a node without its key says:\n%s", diag)
	}
	b.run(0, "upload-keys", "--on", "m1")
	_, diag = b.run(0, "apply", file)
	if !strings.Contains(diag, "was applied already; there is nothing to change") || !strings.Contains(diag, "1 unchanged") {
		t.Errorf("apply of an executed plan says:\n%s", diag)
	}
	b.run(0, "rollback", "--on", "m1", "--to", "1")
	b.checkEqual("to 1", b.status(0)["m1"].Current, first["m1"].Current)

	// The plan of a node that runs another system by now is refused.
	b.run(0, "plan", "--on", "m1,m2", "--out", file)
	b.run(0, "rollback", "--on", "m1", "--to", "2")
	b.write(one, key)
	_, diag = b.run(12, "apply", file, "--yes")
	if !strings.Contains(diag, "m2: the hive has another system now") || strings.Contains(diag, "m1: it runs another") {
		t.Errorf("apply of an outdated plan says:\n%s", diag)
	}
	b.write(strings.NewReplacer(`"one"`, `"three"`, "echo one", "echo three").Replace(one), key)
	if out, _ = b.run(0, "apply", "--on", "m2"); !strings.HasPrefix(out, "\nm2: closure ") {
		t.Errorf("apply does not print which packages it has changed:\n%s", out)
	}
	b.write(change.Replace(one), key)
	_, diag = b.run(12, "apply", file, "--yes")
	if !strings.Contains(diag, "m2: it runs another system now: ") || strings.Contains(diag, "m1: ") {
		t.Errorf("apply of the plan of another system says:\n%s", diag)
	}
	b.run(0, "rollback", "--on", "m2", "--to", "1")
	b.run(0, "rollback", "--on", "m1", "--to", "1")
	_, diag = b.run(8, "rollback", "--on", "m1", "--to", "7")
	if !strings.Contains(diag, "the node no longer has generation 7") {
		t.Errorf("rollback --to 7 says:\n%s", diag)
	}

	// A user switches the system by hand, and a unit fails.
	b.l.Run(t, "m1", second["m1"].Current+"/bin/switch-to-configuration test; systemd-run -q --unit=bad sh -c 'echo the disk is gone; exit 1'; sleep 0.5")
	hand := b.status(9, "--check")
	b.checkEqual("by hand", []any{hand["m1"].System, hand["m1"].FailedUnits, hand["m2"].System}, []any{inspect.OtherSystem, []string{"bad.service"}, inspect.AsDeployed})
	b.checkEqual("why it failed", hand["m1"].Reasons, map[string]string{"bad.service": "the disk is gone"})

	// A machine without sshd: the command still works on the other machine.
	b.l.Run(t, "m2", "systemctl stop ssh.socket ssh.service || systemctl stop ssh.service")
	b.checkEqual("off", b.status(6)["m2"].System, inspect.Unreachable)
	_, diag = b.run(6, "rollback", "--to", "2", "--yes")
	if !strings.Contains(diag, "m2: ") {
		t.Errorf("rollback does not name m2:\n%s", diag)
	}
	b.checkEqual("m1 went on", b.status(6)["m1"].Boots, 2)
}
