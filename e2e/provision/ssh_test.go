package provision

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

const farAddress = "192.168.79.1"

// newRemoteHost creates a network namespace that is connected to the hypervisor only by a cable, and
// starts an OpenSSH server on the hypervisor. A command with this prefix runs in the namespace; with
// this environment ssh uses the configuration for the server.
func newRemoteHost(t *testing.T, l *lab.Lab) (prefix, env []string) {
	t.Helper()
	dir := t.TempDir()
	host := startOnHost(t, l, "unshare", "--net", "sleep", "infinity")
	there := fmt.Sprintf("/proc/%d/ns/net", host.Process.Pid)
	lab := runOnHost(t, l, "readlink", "/proc/self/ns/net")
	here, _ := os.Readlink("/proc/self/ns/net")
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if ns, err := os.Readlink(there); err == nil && ns != lab && ns != here {
			break
		} else if time.Now().After(until) {
			t.Fatalf("unshare has made no network namespace after 5 s: %v", err)
		}
	}
	prefix = []string{"nsenter", "--net=" + there, "--"}
	runOnHost(t, l, "sh", "-ec", fmt.Sprintf("ip link add cable type veth peer name eth0 netns %d; ip address add %s/30 dev cable; ip link set cable up", host.Process.Pid, farAddress))
	runOnHost(t, l, append(prefix, "sh", "-ec", "ip link set lo up; ip address add 192.168.79.2/30 dev eth0; ip link set eth0 up")...)

	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	key := func(name string) string {
		file := filepath.Join(dir, name)
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
		return file
	}
	hostKey, client := key("host"), key("client")
	public, err := os.ReadFile(hostKey + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	known := write("known_hosts", farAddress+" "+string(public), 0o600)
	sshd := write("sshd_config", fmt.Sprintf(`ListenAddress %s
HostKey %s
AuthorizedKeysFile %s.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
LogLevel VERBOSE
`, farAddress, hostKey, client), 0o600)
	// sshd runs in libvirtd's mount namespace, in which libvirtd's socket has its usual path.
	startOnHost(t, l, "nsenter", "--mount=/proc/"+labPID(t, l)+"/ns/mnt", "--", "sh", "-ec", `mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e -f "$0"`, sshd)

	// libvirt and nixbench run the first ssh in PATH, which uses this configuration.
	config := write("config", fmt.Sprintf("Host far\n  HostName %s\n  User root\nHost *\n  UserKnownHostsFile %s\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n  IdentityFile %s\n  IdentitiesOnly yes\n  BatchMode yes\n", farAddress, known, client), 0o600)
	write("ssh", fmt.Sprintf("#!/bin/sh\nexec /usr/bin/ssh -F %s \"$@\"\n", config), 0o755)
	return prefix, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// A hypervisor that is only reachable by OpenSSH: libvirt connects by virt-ssh-helper, and machines, on
// a network of the hypervisor, are reached through it.
func TestHypervisorBySSH(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 2)
	before := b.listObjects("lxc")
	b.prefix, b.env = newRemoteHost(t, b.l)
	role := b.readRole()
	for i, uri := range []string{"lxc+ssh://far/system", "lxc+ssh://root@" + farAddress + ":22/system"} {
		b.uris = map[string]string{"lxc": uri}
		b.writeHive(role)
		b.run(0, "doctor")
		if i == 0 {
			_, stderr := b.run(0, "apply")
			b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
		}
		// With the other URI it is the same hypervisor with the same machines.
		_, stderr := b.run(0, "apply")
		b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
		b.run(0, "ssh", "w-2", "--", "true")
		if len(b.bootIDs()) != 2 {
			t.Error("not all nodes answer")
		}
	}
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("lxc"), before)
	// Without known_hosts the connection fails, and the error has a command to test it.
	b.uris = map[string]string{"lxc": "qemu+ssh://root@" + farAddress + "/system"}
	b.writeHive(role)
	b.run(0, "plan")
	for _, entry := range b.env {
		dir, _, _ := strings.Cut(strings.TrimPrefix(entry, "PATH="), ":")
		if err := os.Remove(filepath.Join(dir, "known_hosts")); err != nil {
			t.Fatal(err)
		}
	}
	code, _, stderr, _ := b.try("apply")
	if code == 0 || !strings.Contains(stderr, "Host key verification failed") || !strings.Contains(stderr, "virsh -c qemu+ssh://root@"+farAddress+"/system version") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Log(stderr)
}
