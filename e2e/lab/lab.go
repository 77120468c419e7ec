// Package lab starts machines for end-to-end tests: containers with a real systemd, sshd and Nix daemon, on a private libvirt
// network, which end with the test. The README beside this file describes them, and the shell script "lab" that the package runs.
//
// Machines are only reachable from the lab's network namespace: start clients with [Lab.Command], which changes only the network
// namespace. A test of a program that creates machines itself starts with [Hypervisor], and an [Image] for each kind of machine.
//
// Tests that call [Start] are skipped unless NIXBENCH_E2E=1. With it they fail on a host that lacks something.
package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Machine is one machine of a running lab.
type Machine struct {
	Name    string `json:"name"`
	IP      string `json:"ip"`
	MAC     string `json:"mac"`
	HostKey string `json:"hostKey"` // public, in the format of authorized_keys
	Disk    string `json:"disk"`    // the size limit of the machine's disk, if there is one
}

// Lab is a set of machines that run on this host for a test, and the content of its lab.json.
type Lab struct {
	Dir        string            `json:"dir"`        // folder of the lab's files; it is removed after the test
	PID        int               `json:"pid"`        // the process that has made the lab's namespaces; it is in the lab's cgroups
	URIs       map[string]string `json:"uris"`       // of the lab's libvirt by driver, qemu or lxc; they work in each network namespace
	PoolPath   string            `json:"poolPath"`   // a folder for the disks of machines that a test creates; empty at the start
	Network    string            `json:"network"`    // the libvirt network that the machines are on; "" if there are none
	Subnet     string            `json:"subnet"`     // its addresses
	KeyFile    string            `json:"keyFile"`    // the private SSH key for the accounts root, deploy and askpass of all machines
	KnownHosts string            `json:"knownHosts"` // a file with the host key of each machine, by name and by address
	SSHConfig  string            `json:"sshConfig"`  // an OpenSSH configuration with the machines' names
	Machines   []Machine         `json:"machines"`

	script string
	tie    *os.File // pipe to the lab's script, which ends the lab when the pipe is closed
}

// Start starts a lab of n machines, which accept SSH logins when it returns. The flags are those of the command `lab up`.
// The lab ends with the test; if the test failed, the machines' journals are saved first.
func Start(tb testing.TB, n int, flags ...string) *Lab {
	tb.Helper()
	needE2E(tb)
	l, err := Up(labDir(tb), n, flags...)
	if l != nil {
		tb.Cleanup(func() {
			if tb.Failed() {
				l.keepLogsOf(tb)
			}
			if err := l.Down(); err != nil {
				tb.Error(err)
			}
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Hypervisor starts a lab without machines and without a network. The test creates machines in it from an [Image].
func Hypervisor(tb testing.TB, flags ...string) *Lab {
	tb.Helper()
	return Start(tb, 0, append(flags, "--hypervisor")...)
}

// Up starts a lab in dir without a test. If the lab cannot be started, Up returns it together with the error, so that Down can remove its files.
// If the caller's process is killed, the lab's processes end, too.
func Up(dir string, n int, flags ...string) (*Lab, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	// The lab runs while this pipe is open. The kernel closes the pipe when this process ends, and so the lab ends, too.
	stdin, tie, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	l := &Lab{Dir: dir, script: script, tie: tie}
	// Building the image, or Kubernetes, for the first time may take minutes.
	args := append([]string{"--dir", dir, "up", strconv.Itoa(n), "--tied"}, flags...)
	if _, err := runScript(script, 40*time.Minute, stdin, args...); err != nil {
		return l, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err == nil {
		err = json.Unmarshal(text, l)
	}
	return l, err
}

// Down ends the lab and removes its folder.
func (l *Lab) Down() error {
	l.tie.Close()
	_, err := runScript(l.script, time.Minute, nil, "--dir", l.Dir, "down")
	return err
}

// SaveLogs copies libvirt's logs and the machines' consoles and journals to dir.
func (l *Lab) SaveLogs(dir string) error {
	_, err := runScript(l.script, 2*time.Minute, nil, "--dir", l.Dir, "logs", dir)
	return err
}

// Image returns the folder that `lab image` prints with these arguments: the image of a role, from which a hypervisor makes
// machines ("container" or "vm", and options such as "--size", "4G"), or only the root file system of a machine ("--nixos").
// It is built unless it is cached.
func Image(tb testing.TB, args ...string) string {
	tb.Helper()
	needE2E(tb)
	image, err := BuildImage(args...)
	if err != nil {
		tb.Fatal(err)
	}
	return image
}

// BuildImage is like [Image], but for callers that are not a test.
func BuildImage(args ...string) (string, error) {
	script, err := findScript()
	if err != nil {
		return "", err
	}
	return runScript(script, 20*time.Minute, nil, append([]string{"image"}, args...)...)
}

func needE2E(tb testing.TB) {
	tb.Helper()
	if os.Getenv("NIXBENCH_E2E") != "1" {
		tb.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
}

// runScript runs the lab's script, and returns what it prints on stdout. stdin may be nil. The script has shorter time limits of its
// own, with messages that tell what it waited for.
func runScript(script string, timeout time.Duration, stdin io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var out, diag strings.Builder
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &diag
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("lab %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), diag.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// labDir returns the folder for the test's lab. All runs of a test have the same folder, so
// that a run removes the lab of an earlier run that was killed. Different tests, and different
// copies of the source, have different folders.
func labDir(tb testing.TB) string {
	wd, _ := os.Getwd()
	for i := 0; ; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", wd, tb.Name(), i))
		dir := fmt.Sprintf("/tmp/nixbench-lab/test-%x", sum[:6])
		if !inUse(dir) {
			return dir
		}
	}
}

// inUse reports whether a lab runs in dir: the lab of the same test in another process, or
// another lab of this process.
func inUse(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "world.pid"))
	if err != nil {
		return false
	}
	pid, _, _ := strings.Cut(string(text), " ")
	cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && bytes.Contains(cmdline, []byte(dir))
}

// findScript returns the path of the shell script that starts and ends labs.
func findScript() (string, error) {
	repository, err := fixture.Repository()
	return filepath.Join(repository, "e2e", "lab", "lab"), err
}
