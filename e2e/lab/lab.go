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
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
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
	Dir      string // state; gone after the test
	Network  string // the libvirt network that the machines are on; "" if there are none
	Subnet   string
	Machines []Machine

	script     string
	keyFile    string
	knownHosts string
	sshConfig  string
	uris       map[string]string
	poolPath   string
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

// An Option changes the lab that Start makes.
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
// instead of a part of the machine's overlay. It keeps its content over reboots.
func WithVolume(path string) Option {
	return func(o *options) { o.args = append(o.args, "--volume", path) }
}

// WithKubernetes makes machines that can be Kubernetes nodes. They may do more to
// the host than others: they have all capabilities.
func WithKubernetes() Option {
	return func(o *options) { o.args = append(o.args, "--kubernetes") }
}

// WithHypervisor adds to the machines what others need to make some: QEMU, and a
// folder for images. See [Hypervisor].
func WithHypervisor() Option {
	return func(o *options) { o.args = append(o.args, "--hypervisor") }
}

// Start starts a lab of n machines, which take SSH logins when it returns. The
// lab ends with the test; if the test failed, the machines' journals are saved
// first. Should the test's process be killed, the lab's processes end with it.
func Start(tb testing.TB, n int, opts ...Option) *Lab {
	tb.Helper()
	needE2E(tb)
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	script, err := findScript()
	if err != nil {
		tb.Fatal(err)
	}
	dir := labDir(tb)
	l := &Lab{Dir: dir, script: script}

	// The lab lives as long as this pipe is open, so it cannot outlive us.
	tie, hold, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer tie.Close()
	tb.Cleanup(func() {
		if tb.Failed() {
			l.saveLogs(tb)
		}
		hold.Close()
		if out, err := l.lab(time.Minute, nil, "down"); err != nil {
			tb.Errorf("lab down: %v\n%s", err, out)
		}
	})

	// Building the image for the first time may take minutes.
	args := append([]string{"up", strconv.Itoa(n), "--tied"}, o.args...)
	out, err := l.lab(20*time.Minute, func(up *exec.Cmd) { up.Stdin = tie }, args...)
	if err != nil {
		tb.Fatalf("lab up: %v\n%s", err, out)
	}
	if err := l.load(); err != nil {
		tb.Fatal(err)
	}
	return l
}

func needE2E(tb testing.TB) {
	tb.Helper()
	if os.Getenv("NIXBENCH_E2E") != "1" {
		tb.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
}

// load fills in what the program wrote down.
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
	l.uris, l.poolPath = s.URIs, s.PoolPath
	l.keyFile, l.knownHosts, l.sshConfig = s.KeyFile, s.KnownHosts, s.SSHConfig
	return nil
}

// lab calls the program for this lab and returns all that it printed. The timeout
// is a last resort: the program has deadlines of its own, which explain themselves.
func (l *Lab) lab(timeout time.Duration, change func(*exec.Cmd), args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.script, append([]string{"--dir", l.Dir}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if change != nil {
		change(cmd)
	}
	out, err := cmd.CombinedOutput()
	return bytes.TrimSpace(out), err
}

// labDir is the same for each run of a test, so that a run cleans up after one
// that was killed, and different for each test and copy of the source.
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

// inUse: a lab is up in dir. It is somebody else's, perhaps the same test's in
// another process, or a second lab of this test.
func inUse(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "world.pid"))
	if err != nil {
		return false
	}
	pid, _, _ := strings.Cut(string(text), " ")
	cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && bytes.Contains(cmdline, []byte(dir))
}

// findScript finds the program beside this file.
func findScript() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "lab")
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("the lab's program is not beside its source (was this built with -trimpath?): %w", err)
	}
	return script, nil
}
