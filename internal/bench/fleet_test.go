package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

// BenchmarkFleet measures apply to named nodes, which this process simulates: the first apply, which switches all of them, and one without
// changes. The figures are those of the program alone, without its evaluations.
func BenchmarkFleet(b *testing.B) {
	program := filepath.Join(b.TempDir(), "nixbench")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/nixbench").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	if other := os.Getenv("NIXBENCH_PROGRAM"); other != "" {
		program = other
	}
	for _, count := range []int{10, 100, 1000} {
		dir, nixpkgs := b.TempDir(), fixture.Nixpkgs(b)
		nodes := startSimulatedNodes(b, dir, count)
		for _, scenario := range []string{"first", "noop"} {
			b.Run(fmt.Sprintf("%s/%d", scenario, count), func(b *testing.B) {
				for range b.N {
					before := 0
					for _, n := range nodes {
						before += n.server.Handshakes()
					}
					cmd := exec.CommandContext(b.Context(), program, "apply", "--timeout", "check=0")
					cmd.Dir, cmd.Env = dir, append(os.Environ(), "NIX_PATH=nixpkgs="+nixpkgs, "NIX_CONFIG="+fixture.NixConfig)
					f, err := measure(cmd)
					if err != nil {
						b.Fatal(err)
					}
					after := 0
					for _, n := range nodes {
						after += n.server.Handshakes()
					}
					b.ReportMetric(f[hereMemory], "MB")
					b.ReportMetric(f[hereCPU]*1000/float64(count), "cpu-ms/node")
					b.ReportMetric(float64(after-before)/float64(count), "handshakes/node")
				}
			})
		}
	}
}

// startSimulatedNodes starts the nodes, and writes the hive and what ssh needs into dir.
func startSimulatedNodes(b *testing.B, dir string, count int) (nodes []*simulatedNode) {
	var known []string
	hive := fmt.Sprintf("{ meta.nixpkgs = import <nixpkgs> { }; defaults = { name, ... }: { networking.hostName = \"\"; system.stateVersion = \"25.05\";\n"+
		"  environment.etc.node.text = name; deployment.targetHost = \"127.0.0.1\"; deployment.sshOptions = [ \"-F\" %q ]; };\n", filepath.Join(dir, "ssh_config"))
	for i := range count {
		n := &simulatedNode{current: "/nix/store/00000000000000000000000000000000-nixos-system-before", generation: 1}
		var err error
		if n.server, err = sshtest.Start(sshtest.Options{ForbidForwarding: true, Handler: n.handleCommand}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { n.server.Close() })
		nodes, known = append(nodes, n), append(known, n.server.KnownHostsLine())
		hive += fmt.Sprintf("  node-%d.deployment.targetPort = %d;\n", i+1, n.server.Port())
	}
	config := fmt.Sprintf("Host *\n User root\n IdentityFile %[1]s/key\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %[1]s/known_hosts\n GlobalKnownHostsFile none\n", dir)
	for name, text := range map[string]string{"hive.nix": hive + "}\n", "ssh_config": config, "known_hosts": strings.Join(known, "\n") + "\n", "key": string(sshtest.GeneratePrivateKey())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return nodes
}

// simulatedNode replies to commands like a real node that runs the scripts of the packages activate, closure
// and secrets.
type simulatedNode struct {
	server *sshtest.Server

	mu         sync.Mutex
	current    string
	generation int
	run        []string // the record of the last run, in lines name=value
}

const switchOutput = `stopping the following units: one.service, two.service
activating the configuration...
setting up /etc...
restarting systemd...
reloading user units for root...
restarting sysinit-reactivation.target
reloading the following units: dbus.service
restarting the following units: nix-daemon.service, sshd.service
starting the following units: one.service, two.service
the following new units were started: three.service`

// handleCommand executes a command that the client runs over SSH, and returns the exit status.
func (n *simulatedNode) handleCommand(_ context.Context, e *sshtest.Exec) int {
	argv := e.Argv
	switch {
	case argv[0] == "bash" && len(argv) > 5 && argv[3] == "nixbench":
		_, _ = io.Copy(io.Discard, e.Stdin) // discard the script
		return n.runActivateScript(e, argv[5:])
	case argv[0] == "sh" && len(argv) > 4 && argv[3] == "upload-keys":
		return exchangeNoKeys(e, argv[4])
	case argv[0] == "ln":
		return 0
	case argv[0] == "nix-daemon":
		(&daemontest.Store{AllValid: true}).ServeStdio(e.Stdin, e.Stdout)
		return 0
	}
	fmt.Fprintf(e.Stderr, "no simulated node knows %q\n", argv)
	return 127
}

// runActivateScript executes a command of package activate's script, and returns the exit status.
func (n *simulatedNode) runActivateScript(e *sshtest.Exec, argv []string) int {
	out := bufio.NewWriter(e.Stdout)
	defer out.Flush()
	switch argv[0] {
	case "inspect":
		n.writeReport(out, argv[1])
	case "start":
		run, goal, path, armed := argv[1], argv[2], argv[3], argv[5]
		for line := range strings.SplitSeq(switchOutput, "\n") {
			fmt.Fprintf(out, "beat=\nlog=%s\n", line)
		}
		n.mu.Lock()
		n.run = []string{"run=" + run, "goal=" + goal, "path=" + path, "from=" + n.current, "to=" + path, "armed=" + armed, "phase=waiting", "code=0", "boot=1"}
		n.current = path
		n.mu.Unlock()
		if armed == "0" {
			n.commit()
		}
		n.writeReport(out, "")
	case "confirm":
		n.mu.Lock()
		n.run = replaceLine(n.run, "phase=waiting", "phase=confirmed")
		n.mu.Unlock()
		n.writeReport(out, "")
	case "confirm-again":
		n.commit()
		n.writeReport(out, "")
	default:
		return 127
	}
	return 0
}

func (n *simulatedNode) commit() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run = append(slices.DeleteFunc(n.run, func(l string) bool { return strings.HasPrefix(l, "phase=") }), "phase=done", "outcome=committed")
	n.generation++
}

// replaceLine returns a copy of lines in which the first line equal to old is replaced by `by`.
func replaceLine(lines []string, old, by string) []string {
	out := slices.Clone(lines)
	if i := slices.Index(out, old); i >= 0 {
		out[i] = by
	}
	return out
}

// writeReport writes the state of the node, like the inspect command of package activate's script.
func (n *simulatedNode) writeReport(w io.Writer, wanted string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(w, "nixos=yes\ncurrent=%[1]s\nbooted=%[1]s\nprofile=%[1]s\nlink=system-%[2]d-link\n", n.current, n.generation)
	for g := max(1, n.generation-9); g <= n.generation; g++ {
		fmt.Fprintf(w, "generation=/nix/var/nix/profiles/system-%d-link 1700000000 %s 25.05\n", g, n.current)
	}
	fmt.Fprintf(w, "failed=\nsystem=running\nboot-id=1\nuptime=1000\n")
	for _, which := range []string{"booted", "current", "profile"} {
		fmt.Fprintf(w, "kernel-%s=/nix/store/k/bzImage /nix/store/i/initrd /nix/store/m quiet\n", which)
	}
	fmt.Fprintf(w, "deployed=%s\nprevious=\n", n.current)
	if wanted != "" {
		fmt.Fprintf(w, "wanted=%s\nkernel-wanted=/nix/store/k/bzImage /nix/store/i/initrd /nix/store/m quiet\n", wanted)
	}
	for _, line := range n.run {
		fmt.Fprintf(w, "run-%s\n", line)
	}
	fmt.Fprintln(w, "end=yes")
}

// exchangeNoKeys replies to the client like the script of package secrets when there are no keys.
func exchangeNoKeys(e *sshtest.Exec, length string) int {
	script, _ := strconv.Atoi(length)
	in := bufio.NewReader(e.Stdin)
	_, _ = io.CopyN(io.Discard, in, int64(script))
	fmt.Fprintln(e.Stdout, "nixbench-keys 1")
	if counts, _ := in.ReadString('\n'); counts != "4 0\n" { // only the line "end"
		fmt.Fprintf(e.Stderr, "expected no keys, got %q\n", counts)
		return 1
	}
	fmt.Fprintln(e.Stdout, "next")
	// Read two lines: the end of the list, and `keep` or `prune`.
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			return 1
		}
	}
	fmt.Fprintln(e.Stdout, "end")
	return 0
}
