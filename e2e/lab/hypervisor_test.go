package lab

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guest is a machine that a test has made on a hypervisor without nixbench.
type guest struct {
	name, ip, mac string
	driver        string
	l             *Lab
}

const guestNetwork = `<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>guests</name>
  <forward mode='nat'/>
  <bridge name='virguests' stp='off' delay='0'/>
  <ip address='192.168.222.1' netmask='255.255.255.0'><dhcp>
    <range start='192.168.222.10' end='192.168.222.250'/>
    <host mac='52:54:00:00:00:0b' ip='192.168.222.11'/>
    <host mac='52:54:00:00:00:0c' ip='192.168.222.12'/>
  </dhcp></ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>`

const containerXML = `<domain type='lxc'>
  <name>c1</name><memory unit='MiB'>512</memory><vcpu>1</vcpu>
  <os><type>exe</type><init>/usr/sbin/lab-init</init>
    <initenv name='CREDENTIALS_DIRECTORY'>/run/host/credentials</initenv></os>
  <features><capabilities policy='default'/></features>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <filesystem type='file' accessmode='passthrough'><driver type='loop' format='raw'/>
      <source file='POOL/c1.raw'/><target dir='/'/></filesystem>
    <filesystem type='ram' accessmode='passthrough'><source usage='131072' units='KiB'/><target dir='/run'/></filesystem>
    <filesystem type='mount' accessmode='passthrough'>
      <source dir='POOL/c1'/><target dir='/run/host/credentials'/><readonly/></filesystem>
    <interface type='network'><mac address='52:54:00:00:00:0b'/><source network='guests'/><guest dev='eth0'/></interface>
    <console type='pty'/>
  </devices>
</domain>`

const vmXML = `<domain type='qemu'>
  <name>v1</name><memory unit='MiB'>512</memory><vcpu>1</vcpu>
  <sysinfo type='smbios'><oemStrings>
    <entry>io.systemd.credential:system.hostname=v1</entry>
    <entry>io.systemd.credential:ssh.authorized_keys.root=AUTHORIZED</entry>
  </oemStrings></sysinfo>
  <sysinfo type='fwcfg'>
    <entry name='opt/io.systemd.credentials/tmpfiles.extra' file='POOL/v1/tmpfiles.extra'/></sysinfo>
  <os><type arch='x86_64' machine='pc'>hvm</type>
    <kernel>IMAGE/kernel</kernel><initrd>IMAGE/initrd</initrd><cmdline>CMDLINE</cmdline><smbios mode='sysinfo'/></os>
  <features><acpi/><apic/><tcg><tb-cache unit='MiB'>64</tb-cache></tcg></features>
  <cpu mode='custom' match='exact' check='none'><model fallback='allow'>qemu64</model><feature policy='disable' name='cx16'/></cpu>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='unsafe'/>
      <source file='POOL/v1.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <interface type='network'><mac address='52:54:00:00:00:0c'/><source network='guests'/><model type='virtio'/></interface>
    <serial type='pty'><log file='POOL/v1.log' append='on'/></serial><console type='pty'/>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/><controller type='usb' model='none'/>
  </devices>
</domain>`

// makeGuests defines and starts a container and a virtual machine as nixbench would: with
// disks in the pool, and with credentials that set their names and host keys.
func makeGuests(t *testing.T, l *Lab) (container, vm guest) {
	t.Helper()
	containerImage, vmImage := Image(t, "container"), Image(t, "vm")
	pool := l.PoolPath
	container = guest{"c1", "192.168.222.11", "52:54:00:00:00:0b", "lxc", l}
	vm = guest{"v1", "192.168.222.12", "52:54:00:00:00:0c", "qemu", l}
	authorized, err := os.ReadFile(l.KeyFile + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	cmdline, err := os.ReadFile(filepath.Join(vmImage, "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	known := ""
	for _, g := range []guest{container, vm} {
		known += g.ip + " " + g.writeCredentials(t, authorized)
	}
	write(t, filepath.Join(pool, "known_hosts"), known)

	run(t, "cp", "--sparse=always", filepath.Join(containerImage, "disk.raw"), filepath.Join(pool, "c1.raw"))
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", filepath.Join(vmImage, "disk.qcow2"), filepath.Join(pool, "v1.qcow2"))
	fill := strings.NewReplacer("POOL", pool, "IMAGE", vmImage, "CMDLINE", string(cmdline), "AUTHORIZED", strings.TrimSpace(string(authorized)))
	write(t, filepath.Join(pool, "guests.xml"), guestNetwork)
	write(t, filepath.Join(pool, "c1.xml"), fill.Replace(containerXML))
	write(t, filepath.Join(pool, "v1.xml"), fill.Replace(vmXML))

	l.Virsh(t, "net-define "+pool+"/guests.xml; net-start guests")
	container.virsh(t, "define "+pool+"/c1.xml; start c1")
	vm.virsh(t, "define "+pool+"/v1.xml; start v1")
	return container, vm
}

// writeCredentials writes the guest's credentials, and returns its public host key.
func (g guest) writeCredentials(t *testing.T, authorized []byte) string {
	t.Helper()
	dir := filepath.Join(g.l.PoolPath, g.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "host_key")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", g.name, "-f", key)
	private, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	line := func(mode, path string, content []byte) string {
		return fmt.Sprintf("f~ %s %s root root - %s\n", path, mode, base64.StdEncoding.EncodeToString(content))
	}
	write(t, filepath.Join(dir, "system.hostname"), g.name)
	write(t, filepath.Join(dir, "tmpfiles.extra"), "d /root/.ssh 0700 root root -\n"+
		line("0600", "/etc/ssh/ssh_host_ed25519_key", private)+
		line("0600", "/root/.ssh/authorized_keys", authorized)+
		line("0644", "/var/lib/nixbench/node.json", []byte(`{"name":"`+g.name+`"}`)))
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return string(public)
}

func (g guest) virsh(t *testing.T, script string) string {
	t.Helper()
	return g.l.Virsh(t, "-c", g.l.URIs[g.driver], script)
}

// try runs a script on the guest. Its host key must be the one of known_hosts from the first
// connection on.
func (g guest) try(ctx context.Context, connectTimeout, script string) (string, error) {
	out, err := g.l.Command(ctx, "ssh", "-F", "/dev/null", "-i", g.l.KeyFile, "-o", "BatchMode=yes", "-o", "ConnectTimeout="+connectTimeout,
		"-o", "KexAlgorithms=curve25519-sha256", "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+filepath.Join(g.l.PoolPath, "known_hosts"),
		"root@"+g.ip, script).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (g guest) run(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := g.try(ctx, "30", script)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", g.name, script, err, out)
	}
	return out
}

// waitReady waits until the guest has booted with another boot id than notBoot, and returns
// the boot id.
func (g guest) waitReady(t *testing.T, notBoot string) string {
	t.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var last string
	for ctx.Err() == nil {
		try, stop := context.WithTimeout(ctx, 20*time.Second)
		out, err := g.try(try, "2", "cat /proc/sys/kernel/random/boot_id; echo; systemctl is-system-running --wait")
		stop()
		boot, status, _ := strings.Cut(out, "\n")
		if status = strings.TrimSpace(status); boot != notBoot && (status == "running" || status == "degraded") {
			t.Logf("%s was up after %.1f s", g.name, time.Since(started).Seconds())
			return boot
		}
		last = fmt.Sprintf("%s (%v)", out, err)
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s has not booted after 5 minutes; the last answer: %s", g.name, last)
	return ""
}

func TestHypervisor(t *testing.T) {
	started := time.Now()
	l := Hypervisor(t)
	t.Logf("lab up 0 --hypervisor took %.1f s", time.Since(started).Seconds())
	for _, driver := range []string{"lxc", "qemu"} {
		if out := l.Virsh(t, "-c", l.URIs[driver], "list --all --name; net-list --all --name; pool-list --all --name"); out != "" {
			t.Errorf("%s is not empty: %s", driver, out)
		}
	}
	if out := l.Virsh(t, "-c", l.URIs["qemu"], "domcapabilities"); !strings.Contains(out, "<domain>qemu</domain>") {
		t.Errorf("the lab's libvirt does not offer emulated machines:\n%s", out)
	}
	container, vm := makeGuests(t, l)
	for _, g := range []guest{container, vm} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel() // the virtual machine is emulated, and slow
			testGuest(t, g)
		})
	}
}

func testGuest(t *testing.T, g guest) {
	const system = "/nix/store/00000000000000000000000000000000-system"
	first := g.waitReady(t, "")
	got := g.run(t, `
		hostname; cat /var/lib/nixbench/node.json; echo
		systemctl is-system-running
		NIX_REMOTE=daemon nix store info 2>&1 | grep -c '^Version'
		ls /etc/ssh/ssh_host_*; stat -c '%a %U' /etc/ssh/ssh_host_ed25519_key /run
		cat /sys/class/net/eth0/address`)
	want := fmt.Sprintf("%s\n{\"name\":\"%s\"}\nrunning\n1\n/etc/ssh/ssh_host_ed25519_key\n600 root\n755 root\n%s", g.name, g.name, g.mac)
	if got != want {
		t.Errorf("%s has\n%s\nwant\n%s", g.name, got, want)
	}

	// A system that is set as the boot default is activated at the next boot.
	g.run(t, `
		mkdir -p `+system+` && printf '#!/bin/sh\nln -sfn `+system+` /run/current-system\necho activated\n' > `+system+`/activate
		chmod +x `+system+`/activate; echo `+system+` > /boot/nixbench-default; echo kept > /var/kept`)
	// The connection may end before ssh receives the command's status.
	g.try(t.Context(), "30", "systemctl --no-block reboot")
	g.waitReady(t, first)
	got = g.run(t, "hostname; cat /var/kept; readlink /run/booted-system /run/current-system; journalctl -b -u nixbench-lab-boot -o cat | grep -x activated")
	if want := g.name + "\nkept\n" + system + "\n" + system + "\nactivated"; got != want {
		t.Errorf("after a reboot %s has\n%s\nwant\n%s", g.name, got, want)
	}

	// libvirt signals the container's init, and presses the virtual machine's power button.
	g.virsh(t, "shutdown "+g.name)
	for range 600 {
		if g.virsh(t, "domstate "+g.name) == "shut off" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s has not shut down after a minute", g.name)
}

// startGuests starts a container and a virtual machine, waits for the container to boot, and
// checks the logs of both.
func startGuests(t *testing.T, l *Lab) {
	container, vm := makeGuests(t, l)
	container.waitReady(t, "")
	if out := vm.virsh(t, "domstate v1"); out != "running" {
		t.Errorf("v1 is %s", out)
	}
	if found := findTraces(readLabID(t, l.Dir), l.Dir, nil, 0); !strings.Contains(strings.Join(found, "\n"), "/sys/block/loop") {
		t.Errorf("findTraces does not find the container's loop device:\n%s", strings.Join(found, "\n"))
	}
	logs := t.TempDir()
	if err := l.SaveLogs(logs); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{"c1.journal": "systemd", "v1.console": "", "v1.xml": "<name>v1</name>", "qemu.list": "v1", "libvirtd.log": ""} {
		if text, err := os.ReadFile(filepath.Join(logs, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the log %s lacks %q: %v\n%s", file, want, err, text)
		}
	}
}

// killProcesses kills every process of the lab, in the order of /proc.
func killProcesses(t *testing.T, l *Lab) {
	t.Helper()
	id := readLabID(t, l.Dir)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		group, _ := os.ReadFile(process + "/cgroup")
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && pid != os.Getpid() && strings.Contains(string(group), id) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
