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
	Disk    string `json:"disk"`    // the size limit of its disk, if it has one
}

// Lab is a running set of machines.
type Lab struct {
	Name     string
	Dir      string // of the lab's state; removed after the test
	Network  string // the libvirt network that the machines are on; "" if there are none
	Subnet   string
	Machines []Machine

	script     string
	keyFile    string
	knownHosts string
	sshConfig  string
	uris       map[string]string
	poolPath   string
	pid        int      // of the process that holds the namespaces
	tie        *os.File // the lab ends when it is closed
}

// state is lab.json, written by the program when all machines are up.
type state struct {
	Version    int               `json:"version"`
	Name       string            `json:"name"`
	Dir        string            `json:"dir"`
	PID        int               `json:"pid"`
	URIs       map[string]string `json:"uris"`
	PoolPath   string            `json:"poolPath"`
	Network    string            `json:"network"`
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

// WithNames names the machines, which otherwise are m1, m2, ….
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
// other machines. Versions must be in e2e/kube/src; programs of the first one are in
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
// describes them. Without a profile they boot Debian.
func WithNixOS() Option {
	return func(o *options) { o.args = append(o.args, "--nixos") }
}

// WithHypervisor makes a lab in which further machines can be made: it has QEMU, and a
// folder for their disks. See [Hypervisor].
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
				l.saveLogs(tb)
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

// Up starts a lab in dir without a test. It returns what the program printed. A lab
// that did not come up is returned together with the error: Down removes its logs.
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
	// The lab runs as long as this pipe is open, so it ends with this process.
	stdin, tie, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdin.Close()
	l = &Lab{Dir: dir, script: script, tie: tie}
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

// load sets the fields of l from lab.json, which the program wrote.
func (l *Lab) load() error {
	text, err := os.ReadFile(filepath.Join(l.Dir, "lab.json"))
	if err != nil {
		return err
	}
	var s state
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return fmt.Errorf("lab.json: %w", err)
	}
	if s.Version != 1 {
		return fmt.Errorf("lab.json: version %d, want 1", s.Version)
	}
	l.Name, l.Network, l.Subnet, l.Machines = s.Name, s.Network, s.Subnet, s.Machines
	l.uris, l.poolPath, l.pid = s.URIs, s.PoolPath, s.PID
	l.keyFile, l.knownHosts, l.sshConfig = s.KeyFile, s.KnownHosts, s.SSHConfig
	return nil
}

// runScript runs the program for this lab and returns all that it printed; stdin may be
// nil. The program has shorter deadlines of its own, whose messages name what it waited for.
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

// labDir returns the folder for the test's lab. It is the same for each run of a test, so
// that a run removes the lab of a run that was killed, and different for each test and each
// copy of the source.
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

// inUse reports whether a lab runs in dir: that of the same test in another process, or
// another lab of this test.
func inUse(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "world.pid"))
	if err != nil {
		return false
	}
	pid, _, _ := strings.Cut(string(text), " ")
	cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && bytes.Contains(cmdline, []byte(dir))
}

// findScript returns the path of the lab's program.
func findScript() (string, error) {
	repository, err := fixture.Repository()
	return filepath.Join(repository, "e2e", "lab", "lab"), err
}
