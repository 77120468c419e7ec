package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// simulatedNodes is a process with simulated nodes. It is separate from the client so that the
// measurements do not include the nodes.
type simulatedNodes struct {
	cmd  *exec.Cmd
	to   *json.Encoder
	from *json.Decoder
	// Known are the lines of a known_hosts file for the nodes, and Ports are their SSH ports.
	Known []string
	Ports []int
}

// request is sent to the process with the nodes, which replies with a response.
type request struct {
	Start      int           // number of nodes to start
	Activation time.Duration // duration of a switch on a node
	Systems    []string      // the system that each node runs
	Freeze     int           // number of the node to freeze, from 1; 0: none
	Thaw       int
}

type response struct {
	Known      []string
	Ports      []int
	Handshakes []int
	Commands   int
}

func startNodes(ctx context.Context, systems []string, activation time.Duration) (*simulatedNodes, error) {
	s := &simulatedNodes{}
	var err error
	if s.cmd, s.to, s.from, err = startPart(ctx, "nodes"); err != nil {
		return nil, err
	}
	a, err := s.send(request{Start: len(systems), Systems: systems, Activation: activation})
	s.Known, s.Ports = a.Known, a.Ports
	return s, err
}

func (s *simulatedNodes) send(o request) (a response, err error) {
	if err = s.to.Encode(o); err == nil {
		err = s.from.Decode(&a)
	}
	return a, err
}

func (s *simulatedNodes) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startPart starts this program again as a part of the benchmark.
func startPart(ctx context.Context, part string) (*exec.Cmd, *json.Encoder, *json.Decoder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), partVariable+"="+part)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return cmd, json.NewEncoder(in), json.NewDecoder(out), cmd.Start()
}

// serveNodes is the process with the simulated nodes. It ends when its stdin is closed.
func serveNodes(context.Context) error {
	var nodes []*simulatedNode
	answers := json.NewEncoder(os.Stdout)
	for orders := json.NewDecoder(os.Stdin); ; {
		var o request
		if err := orders.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for i := range o.Start {
			n := &simulatedNode{current: o.Systems[i], generation: 1, activation: o.Activation}
			var err error
			if n.server, err = sshtest.Start(sshtest.Options{Handler: n.handle}); err != nil {
				return err
			}
			nodes = append(nodes, n)
		}
		if o.Freeze > 0 {
			nodes[o.Freeze-1].server.Freeze()
		}
		if o.Thaw > 0 {
			nodes[o.Thaw-1].server.Thaw()
		}
		var a response
		for _, n := range nodes {
			if o.Start > 0 {
				a.Known, a.Ports = append(a.Known, n.server.KnownHostsLine()), append(a.Ports, n.server.Port())
			}
			a.Handshakes = append(a.Handshakes, n.server.Handshakes())
			a.Commands += n.server.Commands()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// simulatedNode replies like the scripts of activate, closure and secrets on a real node.
type simulatedNode struct {
	server     *sshtest.Server
	activation time.Duration

	mu         sync.Mutex
	current    string
	generation int
	run        []string // record of the last run
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

func (n *simulatedNode) handle(ctx context.Context, e *sshtest.Exec) int {
	argv := e.Argv
	switch {
	case slices.Equal(argv[:min(3, len(argv))], []string{"sh", "-s", "--"}):
		_, _ = io.Copy(io.Discard, e.Stdin) // discard the script
		return n.activate(ctx, e, argv[3:])
	case argv[0] == "sh" && len(argv) > 4 && argv[4] == "start":
		_, _ = io.Copy(io.Discard, e.Stdin)
		return n.activate(ctx, e, argv[4:])
	case argv[0] == "sh" && len(argv) > 4 && argv[3] == "upload-keys":
		return exchangeNoKeys(e, argv[4])
	case argv[0] == "sh" && len(argv) > 6 && strings.HasSuffix(argv[4], "/gcroots"):
		return 0
	case argv[0] == "xargs": // query for missing store paths: none is missing
		_, _ = io.Copy(io.Discard, e.Stdin)
		return 0
	}
	fmt.Fprintf(e.Stderr, "no simulated node knows %q\n", argv)
	return 127
}

func (n *simulatedNode) activate(ctx context.Context, e *sshtest.Exec, argv []string) int {
	out := bufio.NewWriter(e.Stdout)
	defer out.Flush()
	switch argv[0] {
	case "inspect":
		n.inspect(out, argv[1])
	case "start":
		run, goal, path, armed := argv[1], argv[2], argv[3], argv[5]
		lines := strings.Split(switchOutput, "\n")
		for _, line := range lines {
			fmt.Fprintf(out, "beat=\nlog=%s\n", line)
			out.Flush()
			select {
			case <-time.After(n.activation / time.Duration(len(lines))):
			case <-ctx.Done():
				return 1
			}
		}
		n.mu.Lock()
		n.run = []string{"run=" + run, "goal=" + goal, "path=" + path, "from=" + n.current, "to=" + path, "armed=" + armed, "phase=waiting", "code=0", "boot=1"}
		n.current = path
		n.mu.Unlock()
		if armed == "0" {
			n.commit()
		}
		n.inspect(out, "")
	case "confirm":
		n.mu.Lock()
		n.run = replaceLine(n.run, "phase=waiting", "phase=confirmed")
		n.mu.Unlock()
		n.inspect(out, "")
	case "confirm-again":
		// Count a quarter of the activation time for setting the profile and installing the boot
		// loader.
		time.Sleep(n.activation / 4)
		n.commit()
		n.inspect(out, "")
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

// replaceLine returns a copy of lines with the line old replaced by another line.
func replaceLine(lines []string, old, by string) []string {
	out := slices.Clone(lines)
	if i := slices.Index(out, old); i >= 0 {
		out[i] = by
	}
	return out
}

// inspect writes the node's report about itself.
func (n *simulatedNode) inspect(w io.Writer, wanted string) {
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

// exchangeNoKeys is the node's part of the key exchange when there are no keys.
func exchangeNoKeys(e *sshtest.Exec, length string) int {
	script, _ := strconv.Atoi(length)
	in := bufio.NewReader(e.Stdin)
	_, _ = io.CopyN(io.Discard, in, int64(script))
	fmt.Fprintln(e.Stdout, "nixbench-keys 1")
	if counts, _ := in.ReadString('\n'); counts != "0 0\n" {
		fmt.Fprintf(e.Stderr, "expected no keys, got %q\n", counts)
		return 1
	}
	fmt.Fprintln(e.Stdout, "next")
	// Read the number of sent keys, and keep or prune. The client closes its output after our end.
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			return 1
		}
	}
	fmt.Fprintln(e.Stdout, "end")
	return 0
}
