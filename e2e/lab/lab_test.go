package lab

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMachines(t *testing.T) {
	l := Start(t, 3, "--disk", "m2=200M", "--volume", "/var/lib/containerd")

	t.Run("login", func(t *testing.T) {
		for _, m := range l.Machines {
			if got := l.Run(t, m.Name, "hostname"); got != m.Name {
				t.Errorf("%s has the host name %q", m.Name, got)
			}
			if got := l.Run(t, m.Name, "cat /etc/ssh/ssh_host_ed25519_key.pub"); !strings.HasPrefix(got, m.HostKey+" ") {
				t.Errorf("%s has host key %q, want %q", m.Name, got, m.HostKey)
			}
			if got := l.Run(t, m.Name, "ip -4 -o addr show eth0; cat /sys/class/net/eth0/address"); !strings.Contains(got, m.IP+"/24") || !strings.HasSuffix(got, m.MAC) {
				t.Errorf("%s has %q, want %s and %s", m.Name, got, m.IP, m.MAC)
			}
		}
		// Also by address, with only the key and known_hosts.
		cmd := l.Command(t.Context(), "ssh", "-F", "/dev/null", "-i", l.KeyFile, "-o", "BatchMode=yes",
			"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+l.KnownHosts, "root@"+l.Machines[2].IP, "hostname")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "m3\n" {
			t.Errorf("ssh by address: %v\n%s", err, out)
		}
	})

	t.Run("wrong host key", func(t *testing.T) {
		wrong := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(wrong, []byte("m1 "+l.Machine("m2").HostKey+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := l.Command(t.Context(), "ssh", "-F", l.SSHConfig, "-o", "UserKnownHostsFile="+wrong, "m1", "true").CombinedOutput()
		if err == nil {
			t.Errorf("ssh accepted the wrong host key\n%s", out)
		}
	})

	t.Run("like NixOS", func(t *testing.T) {
		got := l.Run(t, "m1", `
			test -f /etc/NIXOS && test -d /boot && test -d /nix/var/nix/profiles && test -S /nix/var/nix/daemon-socket/socket
			test "$(systemctl is-system-running)" = running
			nix config show trusted-users; nix config show build-users-group; nix config show substituters`)
		if strings.TrimSpace(got) != "root deploy\nnixbld" {
			t.Errorf("Nix's settings are %q", got)
		}
		l.Run(t, "deploy@m1", "sudo -n true")
		if out, err := l.SSH(t.Context(), "askpass@m1", "sudo -n true").CombinedOutput(); err == nil {
			t.Errorf("askpass became root without a password\n%s", out)
		}
		l.Run(t, "askpass@m1", "echo correct horse | sudo -S -p '' true")
	})

	t.Run("isolation", func(t *testing.T) {
		// No machine reaches a network outside of the lab's network namespace.
		if got := l.Run(t, "m1", "ping -c1 -W1 -q 192.0.2.1 >/dev/null 2>&1 && echo out || echo in"); got != "in" {
			t.Error("a packet left the lab")
		}
		if got := l.Run(t, "m1", "for f in kernel/panic vm/overcommit_memory; do echo 1 2>/dev/null > /proc/sys/$f && echo $f; done; true"); got != "" {
			t.Errorf("a machine may write the host's %s", got)
		}
		// Do not test this by connecting to a machine from the host's own network, because packets
		// to private addresses would leave the host.
		if links := listNames("/sys/class/net"); slices.Contains(links, "virlab0") {
			t.Errorf("the lab's bridge is on the host: %q", links)
		}
		if got, err := l.Command(t.Context(), "ip", "-o", "link", "show", "virlab0").CombinedOutput(); err != nil {
			t.Errorf("the lab's bridge is not in the lab: %v\n%s", err, got)
		}
	})

	t.Run("nix daemon", func(t *testing.T) {
		if _, err := exec.LookPath("nix"); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		socket := filepath.Join(l.Dir, "daemon")
		forward := l.Command(t.Context(), "ssh", "-F", l.SSHConfig, "-N", "-o", "ExitOnForwardFailure=yes",
			"-L", socket+":/nix/var/nix/daemon-socket/socket", "m3")
		if err := forward.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { forward.Process.Kill(); forward.Wait() }()
		waitFor(t, "the forwarded socket", func() bool { _, err := os.Stat(socket); return err == nil })

		nix := func(args ...string) string {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "NIX_CONFIG=experimental-features = nix-command flakes\nbuild-users-group =\nsubstituters =", "NIX_REMOTE=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
			}
			return strings.TrimSpace(string(out))
		}
		nix("nix", "store", "ping", "--store", "unix://"+socket)
		file := filepath.Join(dir, "greeting")
		if err := os.WriteFile(file, []byte("hello "+l.Dir), 0o600); err != nil {
			t.Fatal(err)
		}
		store := "local?root=" + filepath.Join(dir, "store")
		path := nix("nix-store", "--store", store, "--add", file)
		nix("nix", "copy", "--from", store, "--to", "unix://"+socket, "--no-check-sigs", path)
		if got := l.Run(t, "m3", "nix-store --check-validity "+path+" && cat "+path); got != "hello "+l.Dir {
			t.Errorf("the copied path has %q", got)
		}
		if got := l.Run(t, "m1", "test -e "+path+" && echo shared || echo own"); got != "own" {
			t.Error("machines share a store")
		}
	})

	t.Run("full disk", func(t *testing.T) {
		got := l.Run(t, "m2", "dd if=/dev/zero of=/nix/filler bs=1M count=300 2>&1 | grep -o 'No space left on device'; rm /nix/filler")
		if got != "No space left on device" {
			t.Errorf("writing 300 MB to a disk of 200 MB: %q", got)
		}
		l.Run(t, "m2", "echo fits > /nix/small")
		l.Run(t, "m1", "dd if=/dev/zero of=/nix/filler bs=1M count=300 && rm /nix/filler")
	})

	t.Run("reboot", func(t *testing.T) {
		const system = "/nix/store/00000000000000000000000000000000-system"
		l.Run(t, "m2", `
			mkdir -p `+system+` /boot
			printf '#!/bin/sh\nln -sfn `+system+` /run/current-system\necho activated\n' > `+system+`/activate
			chmod +x `+system+`/activate
			echo `+system+` > /boot/nixbench-default
			echo kept > /var/kept; echo kept > /var/lib/containerd/kept`)
		before := l.BootID(t, "m2")
		l.Reboot(t, "m2")
		if l.BootID(t, "m2") == before {
			t.Error("same boot id after a reboot")
		}
		if got := l.Run(t, "m2", "cat /var/kept /var/lib/containerd/kept; df -m --output=size / | tail -1"); strings.Join(strings.Fields(got), " ") != "kept kept 200" {
			t.Errorf("after the reboot the disk has %q", got)
		}
		if got := l.Run(t, "m2", "readlink /run/booted-system /run/current-system"); got != system+"\n"+system {
			t.Errorf("booted %q", got)
		}
		if got := l.Run(t, "m2", "journalctl -b -u nixbench-lab-boot -o cat | grep -x activated"); got != "activated" {
			t.Errorf("the journal has no activation: %q", got)
		}
		l.PowerCut(t, "m2")
		l.PowerOn(t, "m2")
		if got := l.Run(t, "m2", "cat /var/kept"); got != "kept" {
			t.Errorf("after a power cut the disk has %q", got)
		}
	})

	t.Run("client is killed with its context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		started := time.Now()
		if err := l.Command(ctx, "sleep", "30").Run(); err == nil || time.Since(started) > 5*time.Second {
			t.Errorf("sleep ended after %v: %v", time.Since(started), err)
		}
	})
}

// Nothing is left of a lab after its end, also of processes that were started in it and not
// waited for. Machines for Kubernetes are in more of the host's cgroups, and have more
// capabilities.
func TestCleanUp(t *testing.T) {
	needE2E(t)
	for _, test := range []struct {
		name  string
		count int
		flags []string
		check func(t *testing.T, l *Lab)
		kill  bool
	}{
		{"plain", 2, []string{"--disk", "m1=100M"}, func(t *testing.T, l *Lab) {
			// A mount, and a process that the test does not wait for.
			l.Run(t, "m2", "systemd-run --quiet sleep 300; mount -t tmpfs none /mnt")
		}, false},
		{"kubernetes", 2, []string{"--kubernetes", "--memory", "2048"}, checkKubernetes, false},
		{"hypervisor", 0, []string{"--hypervisor"}, startGuests, false},
		{"killed hypervisor", 0, []string{"--hypervisor"}, startGuests, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := readHostState(t)
			var dir, id string
			var namespaces []string
			var ended uint64
			t.Run("up", func(t *testing.T) {
				l := Start(t, test.count, test.flags...)
				dir, id = l.Dir, readLabID(t, l.Dir)
				if err := l.Command(context.Background(), "setsid", "sh", "-c", "sleep 300 & sleep 300 &").Run(); err != nil {
					t.Error(err)
				}
				test.check(t, l)
				namespaces = labNamespaces(id, before)
				if found := findTraces(id, dir, namespaces, ticksSinceBoot(t)); len(namespaces) < 5 || len(found) < 20 {
					t.Errorf("the running lab has only %d namespaces and %d traces", len(namespaces), len(found))
				}
				if test.kill {
					killProcesses(t, l)
				}
				ended = ticksSinceBoot(t)
			})
			for _, trace := range findTraces(id, dir, namespaces, ended) {
				t.Error("left: ", trace)
			}
			checkHostUnchanged(t, before)
		})
	}
}

// checkKubernetes checks that machines have what a kubelet and containerd need, also after a
// reboot, and that machines do not see each other's cgroups.
func checkKubernetes(t *testing.T, l *Lab) {
	l.Reboot(t, "m2")
	for _, m := range l.Machines {
		l.Run(t, m.Name, `
			set -e
			test "$(systemctl is-system-running)" = running
			test "$(cat /sys/fs/cgroup/devices/devices.list)" = 'a *:* rwm'
			for c in memory pids systemd cpuset; do mkdir /sys/fs/cgroup/$c/only-$(hostname); done
			test -c /dev/kmsg
			test "$(findmnt -no FSTYPE /var/lib/containerd)" != overlay
			mkdir -p /var/lib/containerd/l /var/lib/containerd/u /var/lib/containerd/w /mnt/o
			cd /var/lib/containerd; mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w /mnt/o
			sysctl -qw vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1 net.ipv4.ip_forward=1`)
	}
	// A frozen process, as runc leaves it when it is killed while it changes a container's devices.
	l.Run(t, "m1", `
		set -e
		setsid sleep 300 </dev/null >/dev/null 2>&1 &
		mkdir /sys/fs/cgroup/freezer/frozen
		echo $! > /sys/fs/cgroup/freezer/frozen/cgroup.procs
		echo FROZEN > /sys/fs/cgroup/freezer/frozen/freezer.state`)
	if got := l.Run(t, "m1", "find /sys/fs/cgroup -name 'only-m2'; cat /sys/fs/cgroup/memory/../cpuset/only-m1/cpuset.cpus | wc -l"); got != "1" {
		t.Errorf("m1 sees m2's cgroups: %q", got)
	}
}

// When `lab up` was killed at any moment, the next up or down removes what it left.
func TestKilledUp(t *testing.T) {
	needE2E(t)
	before := readHostState(t)
	script, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	dir := labDir(t)
	lab := func(args ...string) *exec.Cmd {
		return exec.Command(script, append([]string{"--dir", dir}, args...)...)
	}
	if out, err := lab("image").CombinedOutput(); err != nil {
		t.Fatalf("lab image: %v\n%s", err, out)
	}
	for i, delay := range []int{50, 150, 250, 350, 450, 600, 800, 1000, 1300, 1700} {
		up := lab("up", "3")
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(delay) * time.Millisecond)
		up.Process.Kill()
		up.Wait()
		// For every fourth kill the next command is another up.
		if i%4 == 3 {
			if out, err := lab("up", "1").CombinedOutput(); err != nil {
				t.Errorf("up after one that was killed after %d ms: %v\n%s", delay, err, out)
			} else if out, err := lab("exec", "m1", "hostname").Output(); err != nil || string(out) != "m1\n" {
				t.Errorf("exec: %v\n%s", err, out)
			}
		}
		if out, err := lab("down").CombinedOutput(); err != nil {
			t.Errorf("down after an up that was killed after %d ms: %v\n%s", delay, err, out)
		}
		id := computeLabID(t, script, dir)
		for _, trace := range findTraces(id, dir, nil, 0) {
			t.Errorf("left by an up that was killed after %d ms: %s", delay, trace)
		}
	}
	checkHostUnchanged(t, before)
}

// idOf computes the lab's id as the program does.
func computeLabID(tb testing.TB, script, dir string) string {
	tb.Helper()
	out, err := exec.Command("bash", "-c",
		`. "$1"; name=lab NIXBENCH_LAB=$2; set_lab_dir; printf %s "$lab_id"`, "-", filepath.Join(filepath.Dir(script), "lib/common.sh"), dir).Output()
	if err != nil || !strings.HasPrefix(string(out), "nixbench-lab-") {
		tb.Fatalf("the lab's id: %v %q", err, out)
	}
	return string(out)
}

// A lab ends when the process ends that it is tied to. It does not hold other descriptors of its caller.
func TestTied(t *testing.T) {
	needE2E(t)
	script, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	dir := labDir(t)
	stdin, tie, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.Command(script, "--dir", dir, "up", "1", "--tied")
	up.Stdin = stdin
	inherited, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	up.ExtraFiles = []*os.File{held}
	out, err := up.CombinedOutput()
	stdin.Close()
	held.Close()
	defer func() {
		if out, err := exec.Command(script, "--dir", dir, "down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	}()
	if err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	_ = inherited.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := inherited.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the lab holds a pipe of its caller: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "world.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(text), " ")
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	tie.Close()
	waitFor(t, "the end of the lab", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// `lab up` lists everything that the host lacks, and how to install it.
func TestMissing(t *testing.T) {
	script, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	// bash and the programs that the script calls first, but no program that the lab needs.
	bin := t.TempDir()
	for _, name := range []string{"bash", "dirname", "readlink", "sha256sum", "cut", "uname", "id", "awk", "grep", "sed", "cat", "ls"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(bin, "bash"), script, "--dir", filepath.Join(t.TempDir(), "lab"), "up", "3")
	cmd.Env = []string{"PATH=" + bin, "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("up started a lab without the programs that it needs")
	}
	for _, want := range []string{
		"this host lacks", "libvirtd (package libvirt-daemon)", "dnsmasq (package dnsmasq-base)",
		"virsh (package libvirt-clients)", "lab install",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the message does not have %q:\n%s", want, out)
		}
	}
}

func waitFor(tb testing.TB, what string, ready func() bool) {
	tb.Helper()
	for range 200 {
		if ready() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	tb.Fatalf("no %s after 10 s", what)
}
