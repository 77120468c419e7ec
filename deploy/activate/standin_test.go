package activate

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// standIn is a node without a machine: the real script of this package runs with folders
// below root and with stand-ins for systemd, nix-env and two systems (testdata).
type standIn struct {
	t       testing.TB
	root    string
	world   string // files that the stand-ins read and write
	host    *remote.Host
	server  *sshtest.Server
	rec     *recorder
	a       *Activator
	oldPath string
	newPath string
}

func newStandIn(t testing.TB) *standIn {
	t.Helper()
	root := t.TempDir()
	n := &standIn{t: t, root: root, world: filepath.Join(root, "world"), rec: &recorder{},
		oldPath: filepath.Join(root, "nix/store/old"), newPath: filepath.Join(root, "nix/store/new")}
	for _, dir := range []string{"world/units", "world/journal", "run/nixbench", "run/systemd", "run/wrappers/bin", "run/keys", "nix/var/nix/profiles", "etc"} {
		n.mkdir(dir)
	}
	n.write("etc/NIXOS", "")
	n.mkdir("proc/self")
	n.mkdir("proc/net")
	n.write("proc/self/cgroup", "0::/system.slice/nixbench-activate.service\n")
	n.link(filepath.Join(n.world, "units"), "run/systemd/transient")
	for _, program := range []string{"systemctl", "systemd-run", "nix-env", "journalctl", "find"} {
		n.install("bin/"+program, "run/wrappers/bin/"+program, "")
	}
	for _, system := range []string{n.oldPath, n.newPath} {
		n.install("switch-to-configuration", strings.TrimPrefix(system, root+"/")+"/bin/switch-to-configuration", system)
		n.write(strings.TrimPrefix(system, root+"/")+"/nixos-version", "25.05")
	}
	n.link(n.oldPath, "nix/var/nix/profiles/system-1-link")
	n.link("system-1-link", "nix/var/nix/profiles/system")
	n.link(n.oldPath, "run/current-system")
	n.link(n.oldPath, "run/booted-system")
	n.services("Type=notify NRestarts=0 Id=sshd.service ActiveState=active SubState=running ActiveEnterTimestampMonotonic=100 Transient=no TriggeredBy=")
	n.connect()
	t.Cleanup(n.end)
	return n
}

func (n *standIn) mkdir(path string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, path), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *standIn) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.root, path), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *standIn) read(path string) string {
	text, _ := os.ReadFile(filepath.Join(n.root, path))
	return string(text)
}

// relink replaces a link. The target of the new link is made as a folder.
func (n *standIn) relink(target, path string) {
	n.t.Helper()
	n.mkdir(strings.TrimPrefix(target, n.root))
	if err := os.Remove(filepath.Join(n.root, path)); err != nil {
		n.t.Fatal(err)
	}
	n.link(target, path)
}

// waitForEnd waits for the end of a unit, which removes its file.
func (n *standIn) waitForEnd(unit string) {
	n.t.Helper()
	waitFor(n.t, 10*time.Second, "the end of the unit "+unit, func() bool { return n.read("world/units/"+unit) == "" })
}

// holdUnit makes a unit active until the test ends.
func (n *standIn) holdUnit(name string) {
	n.t.Helper()
	n.waitForEnd(name)
	process := exec.Command("setsid", "sh", "-c", `echo "$$ $(cut -d " " -f 22 /proc/$$/stat)" >"$0"; exec sleep 300`, filepath.Join(n.world, "units", name))
	if err := process.Start(); err != nil {
		n.t.Fatal(err)
	}
	go process.Wait()
	waitFor(n.t, 10*time.Second, "the unit "+name, func() bool { return n.read("world/units/"+name) != "" })
}

// count returns how often a command was called: systemctl with arguments that begin with these.
func (n *standIn) count(command string) int {
	return strings.Count(n.read("world/asked"), command)
}

// glob returns the names of the files that match a pattern, in order.
func (n *standIn) glob(pattern string) string {
	files, _ := filepath.Glob(filepath.Join(n.root, pattern))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return strings.Join(files, " ")
}

func (n *standIn) link(target, path string) {
	n.t.Helper()
	if err := os.Symlink(target, filepath.Join(n.root, path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *standIn) install(from, to, out string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", from))
	if err != nil {
		n.t.Fatal(err)
	}
	n.mkdir(filepath.Dir(to))
	replaced := strings.NewReplacer("@world@", n.world, "@root@", n.root, "@out@", out).Replace(string(text))
	n.write(to, replaced)
	if err := os.Chmod(filepath.Join(n.root, to), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// beforeSwitch sets the new system's step before a switch.
func (n *standIn) beforeSwitch(script string) {
	n.t.Helper()
	name := strings.TrimPrefix(n.newPath, n.root) + "/etc/nixbench/before-switch"
	n.mkdir(filepath.Dir(name))
	n.write(name, "#!/bin/sh\nWORLD="+n.world+"\n"+script+"\n")
	if err := os.Chmod(filepath.Join(n.root, name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// refuses makes a pre-switch check of the new system fail.
func (n *standIn) refuses(name, text string) {
	n.write("world/check-new", "echo '"+text+"'\necho \"Pre-switch check '"+name+"' failed\"\nexit 1\n")
}

// services sets what systemctl shows of services; each is a line of properties.
func (n *standIn) services(services ...string) {
	n.write("world/services", strings.ReplaceAll(strings.Join(services, "\n\n"), " ", "\n")+"\n")
}

// onNew sets additional actions of the new system's switch-to-configuration. The functions in the
// script change the state of systemd: now, or after it has returned: with `later SECONDS FUNCTION…`, or with `whileWatched SERVICE
// FUNCTION…` when the run watches this service.
func (n *standIn) onNew(script string) {
	n.write("world/on-new", `
service() { # ID ENTERED RESTARTS STATE SUBSTATE [TYPE [TRIGGER]], in the order in which systemctl prints them
  printf '\nType=%s\nNRestarts=%s\nId=%s\nTriggeredBy=%s\nActiveState=%s\nSubState=%s\nActiveEnterTimestampMonotonic=%s\nTransient=no\n' "${6:-simple}" "$3" "$1" "${7:-}" "$4" "$5" "$2"
}
only() { service "$@" >$WORLD/services.next; mv $WORLD/services.next $WORLD/services; }
fails() { echo "it burns" >$WORLD/journal/$1; echo "$1 loaded failed failed $1" >$WORLD/failed; }
reports() { printf '%s\n' 'restarting sysinit-reactivation.target' "$@" >&2; code=4; }
jobs() { printf '%s\n' "$@" >$WORLD/jobs; }
done_() { rm -f $WORLD/jobs; }
later() { # in a process group of its own, which the end of the test kills
  local s=$1; shift
  set -m; (sleep "$s"; "$@") </dev/null >/dev/null 2>&1 & echo $! >>$WORLD/background; set +m
}
whileWatched() { later 0 onceWatched "$@"; }
onceWatched() { until grep -q "watching .* $1 " `+n.root+`/run/nixbench/activate/log; do sleep 0.1; done; shift; "$@"; }
[ "$action" = test ] || [ "$action" = switch ] || return 0
`+script)
}

// rebase makes the script use folders below root, and reduces its waits for systemctl and for services that restart.
func (n *standIn) rebase(script string) string {
	pairs := []string{"$from/etc/", "$from/etc/", "$to/etc/", "$to/etc/", "$current/etc/", "$current/etc/"} // below a system
	for _, dir := range []string{"/run/", "/nix/var/", "/var/lib/", "/etc/", "/sys/fs/cgroup/", "/proc/self/cgroup", "/proc/net/"} {
		pairs = append(pairs, dir, n.root+dir)
	}
	script = strings.NewReplacer(pairs...).Replace(script)
	script = strings.ReplaceAll(script, "-t 10 -u", "-t 1 -u")
	script = strings.ReplaceAll(script, "-t 600 -u", "-t 5 -u")
	script = strings.NewReplacer("awaitReach 5", "awaitReach 1", "awaitReach 15", "awaitReach 3").Replace(script)
	return strings.ReplaceAll(script, "settle + 15", "settle + 2")
}

func (n *standIn) connect() {
	n.t.Helper()
	var err error
	if n.server, err = sshtest.Start(sshtest.Options{Handler: n.handle}); err != nil {
		n.t.Fatal(err)
	}
	n.write("key", string(sshtest.GeneratePrivateKey()))
	n.host = remote.NewHost(sshconfig.Config{Node: "web-1", HostName: "127.0.0.1", Port: n.server.Port(), User: "root", Network: "tcp",
		IdentityFiles: []string{filepath.Join(n.root, "key")}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{n.server.Key()}}, remote.Options{})
	n.a = &Activator{Send: n.rec.add}
}

func (n *standIn) handle(ctx context.Context, e *sshtest.Exec) int {
	script, err := io.ReadAll(e.Stdin)
	if err != nil {
		return 1
	}
	if n.isLocked() {
		n.server.Drop()
		return 1
	}
	text := n.rebase(string(script))
	argv := scriptArgv(text, e.Argv[5:])
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go n.dropWhenLocked(ctx)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), e.Stdout, e.Stderr
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "SSH_CONNECTION=10.0.0.1 50000 10.0.0.2 22")
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(e.Stderr, err)
			return 126
		}
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// dropWhenLocked ends all connections when the node stops accepting logins.
func (n *standIn) dropWhenLocked(ctx context.Context) {
	for ctx.Err() == nil {
		if n.isLocked() {
			n.server.Drop()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isLocked reports whether the node accepts no logins.
func (n *standIn) isLocked() bool {
	_, err := os.Stat(filepath.Join(n.world, "locked"))
	return err == nil
}

// end kills the processes that the stand-in for systemd-run has started, and those that still change the state of
// systemd: they must not write while the folder is removed.
func (n *standIn) end() {
	n.host.Close()
	n.server.Close()
	for _, pid := range strings.Fields(n.read("world/background")) {
		group, err := strconv.Atoi(pid)
		if err != nil {
			n.t.Errorf("world/background: %v", err)
			continue
		}
		syscall.Kill(-group, syscall.SIGKILL)
		waitFor(n.t, 10*time.Second, "the end of the process group "+pid, func() bool { return syscall.Kill(-group, 0) != nil })
	}
	exec.Command(filepath.Join(n.root, "run/wrappers/bin/systemctl"), "kill", "nixbench-activate.service").Run()
}

func (n *standIn) request() Request {
	return Request{Run: "r1", Path: n.newPath, Goal: Switch, Confirm: 4 * time.Second, SettleTime: time.Second, ReplaceUnknown: true}
}

func (n *standIn) activate(r Request) (Result, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	res, err := n.a.Activate(ctx, "web-1", n.host, r)
	n.t.Logf("%v: %v\n%s%s", time.Since(begin).Round(10*time.Millisecond), err, n.rec.log(), n.read("world/calls"))
	return res, err
}

// is asserts which systems the node runs and boots, and which calls of switch-to-configuration were made.
func (n *standIn) is(runs, boots string, calls ...string) {
	n.t.Helper()
	if got, _ := filepath.EvalSymlinks(filepath.Join(n.root, "run/current-system")); got != runs {
		n.t.Errorf("runs %s, want %s", got, runs)
	}
	if got, _ := filepath.EvalSymlinks(filepath.Join(n.root, "nix/var/nix/profiles/system")); got != boots {
		n.t.Errorf("boots %s, want %s", got, boots)
	}
	if got := strings.Split(strings.TrimSpace(n.read("world/calls")), "\n"); strings.Join(got, ",") != strings.Join(calls, ",") {
		n.t.Errorf("calls of switch-to-configuration: %q, want %q", got, calls)
	}
}
