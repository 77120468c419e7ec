package activate

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// The test binary is also a netcat, and a client that is killed.
func TestMain(m *testing.M) {
	if addr := os.Getenv("NIXBENCH_TEST_NETCAT"); addr != "" {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			os.Exit(1)
		}
		go func() {
			io.Copy(conn, os.Stdin)
			conn.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(os.Stdout, conn)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// labHost logs in to a machine of a lab. This process is not in the lab's network.
func labHost(t testing.TB, l *lab.Lab, machine, user string) *remote.Host {
	t.Helper()
	m := l.Machine(machine)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proxy := l.Command(t.Context(), "env", "NIXBENCH_TEST_NETCAT="+m.IP+":22", self)
	h := remote.NewHost(sshconfig.Config{
		Node: machine, Alias: machine, HostName: m.IP, Port: 22, User: user, Network: "tcp",
		IdentityFiles: []string{l.KeyFile}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{key},
		ProxyCommand: shellescape.QuoteCommand(proxy.Args), Escalation: []string{"sudo", "-n", "-H", "--"},
	}, remote.Options{})
	t.Cleanup(func() { h.Close() })
	return h
}

// systems are the configurations to which the lab's machines are switched.
const systems = `
nixpkgs:
let
  sh = "/bin/sh";
  unit = script: {
    wantedBy = [ "multi-user.target" ];
    serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "${sh} -c '${script}'"; };
  };
  simple = script: more: {
    wantedBy = [ "multi-user.target" ];
    startLimitIntervalSec = 0;
    serviceConfig = { ExecStart = "${sh} -c '${script}'"; } // more;
  };
  lock = "PATH=/usr/sbin:$PATH iptables -w -I INPUT -p tcp --dport 22 -j DROP";
  unlock = "PATH=/usr/sbin:$PATH iptables -w -D INPUT -p tcp --dport 22 -j DROP || true";
  system = name: module: (import (nixpkgs + "/nixos/lib/eval-config.nix") {
    modules = [ { networking.hostName = ""; networking.firewall.enable = false; system.stateVersion = "25.05"; environment.etc."which".text = name; } module ];
  }).config.system.build.toplevel;
in {
  one = system "one" { systemd.services.steady = unit "true"; };
  two = system "two" { systemd.services.steady = unit "echo changed"; specialisation.quiet.configuration.environment.etc."quiet".text = "yes"; };
  three = system "three" { };
  kernel = system "kernel" { boot.kernelParams = [ "quiet" ]; };
  broken = system "broken" { systemd.services.broken = unit "echo the disk is on fire; exit 1"; systemd.services.steady = unit "true"; };
  stillBroken = system "stillBroken" { systemd.services.broken = unit "echo the disk is on fire; exit 1"; };
  alsoBroken = system "alsoBroken" { systemd.services.broken = unit "echo the disk is on fire; exit 1"; systemd.services.worse = unit "echo worse; exit 3"; };
  refuses = system "refuses" { system.preSwitchChecks.never = "echo not today; false"; };
  script = system "script" { system.activationScripts.bad = "echo bad script; false"; };
  hangs = system "hangs" { system.activationScripts.hang = "echo hanging; sleep 1000"; };
  hangsUnit = system "hangsUnit" { systemd.services.stuck = unit "sleep 1000"; };
  cut = system "cut" { systemd.services.cut = {
    wantedBy = [ "multi-user.target" ];
    serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/usr/sbin/ip link set eth0 down"; ExecStop = "/usr/sbin/ip link set eth0 up"; };
  }; };
  lateFirewall = system "lateFirewall" { systemd.services = {
    # switch-to-configuration returns while the firewall's job is in systemd's queue.
    starter = unit "systemctl start --no-block firewall.service";
    firewall.serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "${sh} -c 'sleep 2; ${lock}'"; ExecStop = "${sh} -c '${unlock}'"; };
  }; };
  lateGuard = system "lateGuard" { systemd.services.guard = {
    wantedBy = [ "multi-user.target" ];
    serviceConfig = { ExecStart = "${sh} -c 'sleep 2; ${lock}; exec sleep 1000'"; ExecStopPost = "${sh} -c '${unlock}'"; };
  }; };
  lateFailure = system "lateFailure" { systemd.services.late = simple "sleep 2; echo the disk is on fire; exit 1" { }; };
  lateLoop = system "lateLoop" { systemd.services.late = simple "sleep 1; echo the disk is on fire; exit 1" { Restart = "always"; RestartSec = "100ms"; }; };
  simple = system "simple" { systemd.services.fine = simple "exec sleep 100000" { }; };
  slow = system "slow" { system.activationScripts.slow = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo step $i; sleep 0.5; done"; };
  slower = system "slower" { system.activationScripts.slow = "for i in 1 2 3 4 5 6; do echo step $i; sleep 0.5; done"; };
  notes = system "notes" { systemd.user.services.notes = simple "exec sleep 100000" { } // { wantedBy = [ "default.target" ]; }; };
  badNotes = system "badNotes" { systemd.user.services.notes = simple "exit 1" { Type = "oneshot"; } // { wantedBy = [ "default.target" ]; }; };
  init = system "init" { system.initInterfaceVersion = 99; };
  loader = system "loader" { system.build.installBootLoader = (import nixpkgs { }).lib.mkForce "/bin/false"; };
}
`

// build returns the store paths of the systems.
func build(t testing.TB) map[string]string {
	t.Helper()
	return buildSystems(t, systems)
}

// buildSystems returns the store paths of the systems in the set that a function of a nixpkgs returns.
func buildSystems(t testing.TB, systems string) map[string]string {
	t.Helper()
	nixpkgs := fixture.Nixpkgs(t)
	file := filepath.Join(t.TempDir(), "systems.nix")
	if err := os.WriteFile(file, []byte(systems), 0o600); err != nil {
		t.Fatal(err)
	}
	expr := `builtins.concatStringsSep "\n" (builtins.attrValues (builtins.mapAttrs (n: v: "${n} ${v.drvPath}") (import ` + file + ` ` + nixpkgs + `)))`
	out, err := nix("nix", "eval", "--impure", "--raw", "--expr", expr).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderrOf(err))
	}
	var names, drvs []string
	for line := range strings.Lines(string(out)) {
		name, drv, _ := strings.Cut(strings.TrimSpace(line), " ")
		names, drvs = append(names, name), append(drvs, drv)
	}
	paths := map[string]string{}
	built, err := nix("nix-store", append([]string{"--realise", "--no-gc-warning"}, drvs...)...).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderrOf(err))
	}
	for i, path := range strings.Fields(string(built)) {
		paths[names[i]] = path
	}
	return paths
}

// nix returns a Nix command with the fixture's configuration.
func nix(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	return cmd
}

func stderrOf(err error) []byte {
	var e *exec.ExitError
	errors.As(err, &e)
	if e == nil {
		return nil
	}
	return e.Stderr
}

// send copies systems to a machine's store.
func send(t testing.TB, h *remote.Host, paths map[string]string) {
	t.Helper()
	conn, err := h.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nb")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nix")
	argv := []string{"copy", "--to", "unix://" + socket, "--no-check-sigs"}
	for _, p := range paths {
		argv = append(argv, p)
	}
	// On a machine that has just booted, the Nix daemon may not run yet.
	waitFor(t, 20*time.Second, "the Nix daemon", func() bool {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Forward(listener, func(ctx context.Context) (net.Conn, error) {
			return conn.Dial(ctx, "unix", "/nix/var/nix/daemon-socket/socket")
		})()
		out, err := nix("nix", argv...).CombinedOutput()
		if err != nil {
			t.Logf("%v: %s", err, out)
		}
		return err == nil
	})
}

// recorder collects events.
type recorder struct {
	mu     sync.Mutex
	events []event.Event
}

func (r *recorder) add(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, e := range r.events {
		if e.Kind == event.NodeLog {
			b.WriteString(e.Text + "\n")
		}
	}
	return b.String()
}

// waitFor polls a condition.
func waitFor(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}
