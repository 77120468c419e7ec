package secrets

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/nixeval"
)

// TestMain makes the test binary also the netcat into the lab's network.
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
		return
	}
	os.Exit(m.Run())
}

const labHive = `{
  meta.nixpkgs = import <nixpkgs> { };
  m1 = { pkgs, ... }: {
    system.stateVersion = "25.05";
    networking.firewall.enable = false;
    users.users.bob = { isSystemUser = true; group = "bobs"; };
    users.groups.bobs = { };
    deployment.keys = {
      db = { text = "correct-horse"; user = "bob"; group = "bobs"; permissions = "0440"; };
      db-late = { text = "battery-staple"; uploadAt = "post-activation"; user = "bob"; };
      moved = { text = "moved"; uploadAt = "post-activation"; };
      "odd 100%n" = { text = "odd"; destDir = "/var/odd dir 50%n/it's"; };
    };
    systemd.services.follower = {
      after = [ "db-key.service" ];
      bindsTo = [ "db-key.service" ];
      script = "exec sleep infinity";
    };
    systemd.services.waiter = {
      after = [ "db-late-key.service" ];
      wants = [ "db-late-key.service" ];
      serviceConfig = { Type = "oneshot"; RemainAfterExit = true; };
      script = "test -e /run/keys/db-late";
    };
  };
}
`

// TestLab tests with systemd and a real switch. The user that owns a key does not exist before the
// switch.
func TestLab(t *testing.T) {
	l := lab.Start(t, 1, "--volume", "/nix") // tail does not trust an overlay with inotify
	out, d := labSystem(t, l, labHive)
	h := labHost(t, l, "m1")
	u := &Uploader{}
	load := func(when When) Set {
		t.Helper()
		set, err := u.Load(t.Context(), "m1", d, when)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	upload := func(when When) Result {
		t.Helper()
		result, err := u.Upload(t.Context(), h, load(when))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}

	if got := upload(Pre); strings.Join(got.Deferred, " ") != "db" || len(got.Uploaded) != 2 {
		t.Errorf("the first upload: %+v", got)
	}
	if got := l.Run(t, "m1", "stat -c '%a %U %G' /run/keys/db /run/keys"); got != "600 root root\n750 root root" {
		t.Errorf("before there is bob: %s", got)
	}
	if _, err := u.Upload(t.Context(), h, load(Post)); err == nil || !strings.Contains(err.Error(), "m1.deployment.keys.db-late: ") {
		t.Errorf("a post-activation key of nobody: %v", err)
	}
	l.Run(t, "m1", out+"/bin/switch-to-configuration switch")
	if got := l.Run(t, "m1", "stat -c '%a %U %G' /run/keys/db"); got != "440 bob bobs" {
		t.Errorf("after activation: %s", got)
	}
	if got := upload(Pre); len(got.Unchanged) != 2 || len(got.Deferred) != 0 {
		t.Errorf("the second upload: %+v", got)
	}

	l.Run(t, "m1", "systemctl start --no-block waiter follower")
	waitUnits(t, l, "db-key=active odd\\x20100\\x25n-key=active db-late-key=inactive nixbench-wait@db-late-key=activating waiter=inactive follower=active")
	upload(Post)
	waitUnits(t, l, "db-late-key=active waiter=active")
	if got := l.Run(t, "m1", "stat -c '%a %U' /run/keys/db-late"); got != "600 bob" {
		t.Errorf("post-activation: %s", got)
	}

	started := func() string {
		return l.Run(t, "m1", "systemctl show -P ActiveEnterTimestampMonotonic -P MainPID db-key.service")
	}
	before := started()
	l.Run(t, "m1", "umask 077; echo new > /run/keys/t; mv /run/keys/t /run/keys/db; sleep 1.5")
	waitUnits(t, l, "db-key=active follower=active")
	if after := started(); after != before {
		t.Errorf("a replaced key restarts its service: %s, %s", before, after)
	}
	for range 3 {
		l.Run(t, "m1", "rm /run/keys/db")
		waitUnits(t, l, "db-key=inactive nixbench-wait@db-key=activating follower=inactive")
		if got := upload(All); strings.Join(got.Uploaded, " ") != "db" {
			t.Errorf("after a removal: %+v", got)
		}
		waitUnits(t, l, "db-key=active follower=active")
	}
	l.Run(t, "m1", "systemctl stop follower") // it would be started too often
	l.Run(t, "m1", "for i in $(seq 50); do mv /run/keys/db /run/keys/x; mv /run/keys/x /run/keys/db; done")
	waitUnits(t, l, "db-key=active")
	l.Run(t, "m1", "for i in $(seq 50); do mv /run/keys/db /run/keys/x; mv /run/keys/x /run/keys/db; done; rm /run/keys/db")
	waitUnits(t, l, "db-key=inactive nixbench-wait@db-key=activating follower=inactive")
	l.Run(t, "m1", "mv /run/keys /run/gone; rm -r /run/gone")
	waitUnits(t, l, "db-key=inactive db-late-key=inactive")
	l.Run(t, "m1", "systemctl start --no-block follower")
	upload(All)
	waitUnits(t, l, "db-key=active db-late-key=active follower=active")
	l.Run(t, "m1", "systemctl start follower; rm /run/keys/db; sleep 1; pkill -f '^tail .*/run/keys/db '")
	waitUnits(t, l, "db-key=inactive nixbench-wait@db-key=activating follower=inactive")
	upload(All)
	waitUnits(t, l, "db-key=active follower=active")

	// After a boot, the keys in /run and the units that wait for them are gone.
	l.Run(t, "m1", "ln -sfn "+out+" /nix/var/nix/profiles/system")
	l.Reboot(t, "m1")
	l.Run(t, "m1", "systemctl start --no-block waiter follower")
	waitUnits(t, l, "db-key=inactive waiter=inactive follower=inactive odd\\x20100\\x25n-key=active")
	h = labHost(t, l, "m1")
	if got := upload(All); len(got.Uploaded) != 3 {
		t.Errorf("after a reboot: %+v", got)
	}
	waitUnits(t, l, "db-key=active waiter=active follower=active")

	// The time until inotify reports the arrival of a key.
	took := l.Run(t, "m1", `rm /run/keys/db; while systemctl -q is-active db-key; do :; done; sleep 2
		umask 077; echo x > /run/keys/t; begin=$(date +%s%N); mv /run/keys/t /run/keys/db
		until systemctl -q is-active db-key; do :; done; echo $((($(date +%s%N) - begin) / 1000000))`)
	t.Logf("a key that arrives is noticed after %s ms", took)

	// A switch does not wait for units that wait for a post-activation key. These units get the
	// key at its new path. Keys that the hive no longer has are removed.
	changed := strings.NewReplacer(
		`db-late = {`, `db-late = { destDir = "/run/elsewhere";`, `moved = {`, `moved = { destDir = "/run/elsewhere";`,
		`test -e /run/keys/db-late`, `test -e /run/elsewhere/db-late`,
		`db = {`, `other = {`, `[ "db-key.service" ]`, `[ "other-key.service" ]`,
	).Replace(labHive)
	l.Run(t, "m1", "systemctl stop waiter follower; rm /run/keys/db-late; sleep 1; systemctl start --no-block waiter")
	waitUnits(t, l, "nixbench-wait@db-late-key=activating waiter=inactive")
	out2, d2 := labSystem(t, l, changed)
	d = d2
	if got := upload(Pre); len(got.Stale) != 2 || strings.Join(got.Uploaded, " ") != "other" {
		t.Errorf("a dropped key, before activation: %+v", got)
	}
	l.Run(t, "m1", out2+"/bin/switch-to-configuration switch")
	// A unit that was active stays active until the key arrives at its new path.
	waitUnits(t, l, "other-key=active nixbench-wait@db-late-key=activating db-key=inactive moved-key=active")
	if got := upload(Post); strings.Join(got.Removed, " ") != "/run/keys/db /run/keys/moved" || strings.Join(got.Uploaded, " ") != "db-late moved" {
		t.Errorf("a dropped key, after activation: %+v", got)
	}
	waitUnits(t, l, "db-late-key=active waiter=active moved-key=active")
	time.Sleep(2 * time.Second) // a restart would begin at once
	waitUnits(t, l, "moved-key=active")
	l.Run(t, "m1", "rm /run/elsewhere/moved")
	waitUnits(t, l, "moved-key=inactive db-late-key=active")

	for _, text := range []string{"correct-horse", "battery-staple"} {
		if got := l.Run(t, "m1", "grep -rl "+text+" $(nix-store -qR "+out+") || true; journalctl -o cat | grep "+text+" || true"); got != "" {
			t.Errorf("%s is in %s", text, got)
		}
	}
	if got := l.Run(t, "m1", "systemctl list-units --failed --no-legend --plain"); got != "" {
		t.Errorf("failed units: %s", got)
	}
}

// labSystem builds the hive's m1 and copies it to the machine.
func labSystem(t *testing.T, l *lab.Lab, hive string) (string, nixeval.Deployment) {
	t.Helper()
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	t.Setenv("NIX_PATH", "nixpkgs="+fixture.Nixpkgs(t))
	file := filepath.Join(t.TempDir(), "hive.nix")
	if err := os.WriteFile(file, []byte(hive), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := nixeval.ParseFileSource(file)
	if err != nil {
		t.Fatal(err)
	}
	e := nixeval.New(nixeval.Options{Source: source})
	surveyed, err := e.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closures, err := e.Instantiate(t.Context(), []string{"m1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Build(t.Context(), closures, ""); err != nil {
		t.Fatal(err)
	}
	out := closures["m1"].Out
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	copied := l.Command(ctx, "nix", "copy", "--no-check-sigs", "--to", "ssh-ng://m1", out)
	copied.Env = append(os.Environ(), "NIX_SSHOPTS=-F "+l.SSHConfig)
	if text, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out, surveyed.Unit("m1").Deployment
}

func labHost(t *testing.T, l *lab.Lab, machine string) *remote.Host {
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
		Node: machine, Alias: machine, HostName: m.IP, Port: 22, User: "deploy", Network: "tcp",
		IdentityFiles: []string{l.KeyFile}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{key},
		ProxyCommand: shellescape.QuoteCommand(proxy.Args), Escalation: []string{"sudo", "-n", "-H", "--"},
	}, remote.Options{})
	t.Cleanup(func() { h.Close() })
	return h
}

// waitUnits waits until services have the given states: "db-key=active …".
func waitUnits(t *testing.T, l *lab.Lab, want string) {
	t.Helper()
	var ask []string
	for field := range strings.FieldsSeq(want) {
		name, _, _ := strings.Cut(field, "=")
		ask = append(ask, shellescape.Quote(name)+".service")
	}
	script := "for u in " + strings.Join(ask, " ") + `; do printf '%s=%s ' "${u%.service}" "$(systemctl is-active -- "$u")"; done`
	var got string
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
		if got = strings.TrimSpace(l.Run(t, "m1", script)); got == want {
			return
		}
	}
	status, _ := l.SSH(t.Context(), "m1", "systemctl list-jobs; journalctl -o short-precise -n 40 -u '*key*' -u follower -u waiter").CombinedOutput()
	t.Fatalf("units are %s, want %s\n%s", got, want, status)
}
