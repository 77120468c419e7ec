package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Machine returns the machine with this name. It panics if there is no such machine.
func (l *Lab) Machine(name string) Machine {
	return l.Machines[slices.IndexFunc(l.Machines, func(m Machine) bool { return m.Name == name })]
}

// Command returns a command that will run on this host in the lab's network. The
// command is a direct child: signals and the end of ctx reach it. Processes that it
// leaves behind end with the lab.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.script, append([]string{"--dir", l.Dir, "run", name}, args...)...)
	// A background process may keep the output open.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// NetworkCommand returns a command like Command, but not started by the lab's script, so that a benchmark measures only the command.
// Processes that the command leaves behind do not end with the lab.
func (l *Lab) NetworkCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", l.PID), "--", name}, args...)...)
}

// Inside returns a command that will run in all namespaces of the lab, like the lab's libvirtd:
// the command sees the lab's processes with their ids in the lab's process namespace.
func (l *Lab) Inside(ctx context.Context, name string, args ...string) *exec.Cmd {
	ns := fmt.Sprintf("/proc/%d/ns/", l.PID) // the process that has made the namespaces is itself in the host's process namespace
	return l.Command(ctx, "nsenter", append([]string{"--mount=" + ns + "mnt", "--pid=" + ns + "pid_for_children", "--", name}, args...)...)
}

// SSH returns an ssh command to a machine, as root unless the machine is given
// as user@machine. The remote shell sees the arguments joined with spaces.
func (l *Lab) SSH(ctx context.Context, machine string, args ...string) *exec.Cmd {
	return l.Command(ctx, "ssh", append([]string{"-F", l.SSHConfig, "-o", "ConnectTimeout=5", machine, "--"}, args...)...)
}

// Run runs a shell script on a machine and returns its output without the final
// newline. The test fails if the script fails.
func (l *Lab) Run(tb testing.TB, machine, script string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	var stderr strings.Builder
	cmd := l.SSH(ctx, machine, script)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %s: %v\n%s%s", machine, script, err, out, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Virsh runs virsh on the lab's libvirt and returns its output. The test fails if virsh fails.
func (l *Lab) Virsh(tb testing.TB, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	out, err := l.Command(ctx, "virsh", append([]string{"-q"}, args...)...).CombinedOutput()
	if err != nil {
		tb.Fatalf("virsh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// PowerCut stops a machine without a shutdown, like a power failure. Its disk remains.
func (l *Lab) PowerCut(tb testing.TB, machine string) {
	tb.Helper()
	l.Virsh(tb, "destroy", machine)
}

// PowerOn starts a machine that is off, and waits until it has booted.
func (l *Lab) PowerOn(tb testing.TB, machine string) {
	tb.Helper()
	l.Virsh(tb, "start", machine)
	l.WaitReady(tb, machine, "")
}

// Reboot reboots a machine with systemctl over SSH, and waits until it has booted again.
func (l *Lab) Reboot(tb testing.TB, machine string) {
	tb.Helper()
	old := l.BootID(tb, machine)
	// The connection may end before ssh receives the command's status.
	var exit *exec.ExitError
	out, err := l.SSH(tb.Context(), machine, "systemctl --no-block reboot").CombinedOutput()
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 255) {
		tb.Fatalf("%s: reboot: %v\n%s", machine, err, out)
	}
	l.WaitReady(tb, machine, old)
}

// BootID returns the id of the machine's current boot, which changes with each reboot.
func (l *Lab) BootID(tb testing.TB, machine string) string {
	tb.Helper()
	return l.Run(tb, machine, "cat /proc/sys/kernel/random/boot_id")
}

// WaitReady waits for at most a minute until the machine has booted. Failed systemd units are
// allowed. The boot with the id notBoot, such as the one before a reboot, does not count.
func (l *Lab) WaitReady(tb testing.TB, machine, notBoot string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	const script = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait"
	var last string
	for ctx.Err() == nil {
		// A connection to a machine that shuts down can stay open without an answer.
		try, stop := context.WithTimeout(ctx, 10*time.Second)
		out, err := l.SSH(try, machine, script).CombinedOutput()
		stop()
		last = fmt.Sprintf("%s (%v)", strings.TrimSpace(string(out)), err)
		boot, status, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if boot != notBoot && (status == "running" || status == "degraded") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	tb.Fatalf("%s has not booted after a minute; the last answer: %s", machine, last)
}

// keepLogsOf copies the logs of a failed test to a new folder in NIXBENCH_E2E_LOGS, or in the folder for temporary files.
func (l *Lab) keepLogsOf(tb testing.TB) {
	tb.Helper()
	name := strings.NewReplacer("/", "-", " ", "-").Replace(tb.Name())
	root := cmp.Or(os.Getenv("NIXBENCH_E2E_LOGS"), os.TempDir())
	err := os.MkdirAll(root, 0o755)
	dir := filepath.Join(root, "nixbench-e2e-"+name+"-"+rand.Text()[:8])
	if err = errors.Join(err, os.Mkdir(dir, 0o755)); err == nil {
		err = l.SaveLogs(dir)
	}
	if err != nil {
		tb.Logf("the lab's logs may be incomplete: %v", err)
	}
	tb.Logf("the lab's logs are in %s", dir)
}

// Aliases writes an OpenSSH configuration and returns its path, for SSH_CONFIG_FILE. machines maps
// host names of a hive to names of machines of the lab.
func (l *Lab) Aliases(tb testing.TB, machines map[string]string) (file string) {
	tb.Helper()
	var b strings.Builder
	for host, name := range machines {
		m := l.Machine(name)
		fmt.Fprintf(&b, "Host %s\n  HostName %s\n  HostKeyAlias %s\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n",
			host, m.IP, m.Name, l.KeyFile, l.KnownHosts)
	}
	file = filepath.Join(tb.TempDir(), "ssh_config")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}
