package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// Lab is a set of machines that run on this host for a test.
type Lab struct {
	state
	script string
	tie    *os.File // pipe to the lab's script, which ends the lab when the pipe is closed
}

// state is the content of lab.json, which the lab's script writes when all machines have started.
type state struct {
	Version    int               `json:"version"`
	Name       string            `json:"name"`
	Dir        string            `json:"dir"` // folder of the lab's state; it is removed after the test
	PID        int               `json:"pid"` // the process that holds the lab's namespaces
	URIs       map[string]string `json:"uris"`
	PoolPath   string            `json:"poolPath"`
	Network    string            `json:"network"` // the libvirt network that the machines are on; "" if there are none
	Subnet     string            `json:"subnet"`
	KeyFile    string            `json:"keyFile"`
	KnownHosts string            `json:"knownHosts"`
	SSHConfig  string            `json:"sshConfig"`
	Machines   []Machine         `json:"machines"`
}

// An Option changes the lab that [Start] starts.
type Option func(*options)

type options struct {
	args []string
}

// WithDisk gives the machine a disk of at most this size ("200M", "1G"). The
// others share the space of the host.
func WithDisk(machine, size string) Option {
	return func(o *options) { o.args = append(o.args, "--disk", machine+"="+size) }
}

// WithNames sets the names of the machines. The default names are m1, m2, ….
func WithNames(names ...string) Option {
	return func(o *options) { o.args = append(o.args, "--names", strings.Join(names, ",")) }
}

// WithMemory sets the memory limit of each machine.
func WithMemory(mib int) Option {
	return func(o *options) { o.args = append(o.args, "--memory", strconv.Itoa(mib)) }
}

// WithVolume makes path on each machine a folder of the host's file system
// instead of a part of the machine's overlay. Reboots keep its content.
func WithVolume(path string) Option {
	return func(o *options) { o.args = append(o.args, "--volume", path) }
}

// WithKubernetes makes machines that can be Kubernetes nodes; the README of e2e/kube
// describes them. They have all capabilities, so they are less isolated from the host than
// other machines. Versions must be in e2e/kube/src. The programs of the first version are in
// /usr/bin.
func WithKubernetes(versions ...string) Option {
	return func(o *options) {
		o.args = append(o.args, "--kubernetes")
		for _, v := range versions {
			o.args = append(o.args, "--kubernetes-version", v)
		}
	}
}

// WithNixOS makes machines that boot the real NixOS of their system profile; e2e/real
// describes the machines. A machine without a system profile boots Debian.
func WithNixOS() Option {
	return func(o *options) { o.args = append(o.args, "--nixos") }
}

// WithHypervisor makes a lab in which further machines can be created: the lab has QEMU, and a
// folder for the disks of such machines. See [Hypervisor].
func WithHypervisor() Option {
	return func(o *options) { o.args = append(o.args, "--hypervisor") }
}

// Start starts a lab of n machines, which accept SSH logins when it returns. The
// lab ends with the test; if the test failed, the machines' journals are saved
// first. If the test's process is killed, the lab's processes end, too.
func Start(tb testing.TB, n int, opts ...Option) *Lab {
	tb.Helper()
	needE2E(tb)
	l, out, err := Up(labDir(tb), n, opts...)
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
	tb.Logf("%s", out)
	return l
}

// Up starts a lab in dir without a test. It returns the output of the lab's script. If the lab
// cannot be started, Up returns it together with the error, so that Down can remove its files.
// If the caller's process is killed, the lab's processes end, too.
func Up(dir string, n int, opts ...Option) (l *Lab, out []byte, err error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	script, err := findScript()
	if err != nil {
		return nil, nil, err
	}
	// The lab runs while this pipe is open. The kernel closes the pipe when this process ends, and so the lab ends, too.
	stdin, tie, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdin.Close()
	l = &Lab{state: state{Dir: dir}, script: script, tie: tie}
	// Building the image, or Kubernetes, for the first time may take minutes.
	args := append([]string{"up", strconv.Itoa(n), "--tied"}, o.args...)
	out, err = l.runScript(40*time.Minute, stdin, args...)
	if err != nil {
		return l, out, fmt.Errorf("lab up: %w\n%s", err, out)
	}
	return l, out, l.load()
}

// Down ends the lab and removes its folder.
func (l *Lab) Down() error {
	l.tie.Close()
	if out, err := l.runScript(time.Minute, nil, "down"); err != nil {
		return fmt.Errorf("lab down: %w\n%s", err, out)
	}
	return nil
}

// SaveLogs copies libvirt's logs and the machines' consoles and journals to dir.
func (l *Lab) SaveLogs(dir string) error {
	if out, err := l.runScript(2*time.Minute, nil, "logs", dir); err != nil {
		return fmt.Errorf("lab logs: %w\n%s", err, out)
	}
	return nil
}

func needE2E(tb testing.TB) {
	tb.Helper()
	if os.Getenv("NIXBENCH_E2E") != "1" {
		tb.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
}

// load sets the fields of l from lab.json, which the lab's script has written.
func (l *Lab) load() error {
	text, err := os.ReadFile(filepath.Join(l.Dir, "lab.json"))
	if err != nil {
		return err
	}
	dir := l.Dir
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l.state); err != nil {
		return fmt.Errorf("lab.json: %w", err)
	}
	if l.Version != 1 {
		return fmt.Errorf("lab.json: version %d, want 1", l.Version)
	}
	l.Dir = dir
	return nil
}

// runScript runs the lab's script for this lab and returns all output of the script. stdin may be
// nil. The script has shorter time limits of its own, with messages that tell what it waited for.
func (l *Lab) runScript(timeout time.Duration, stdin *os.File, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.script, append([]string{"--dir", l.Dir}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if stdin != nil {
		cmd.Stdin = stdin
	}
	out, err := cmd.CombinedOutput()
	return bytes.TrimSpace(out), err
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
