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

// simulatedNodes is the connection to a process with simulated nodes. The nodes run in another process
// than the client, so that the client's measurements do not include the nodes.
type simulatedNodes struct {
	cmd  *exec.Cmd
	to   *json.Encoder
	from *json.Decoder
	// Known contains the known_hosts line of each node, and Ports contains the SSH port of each node.
	Known []string
	Ports []int
}

// request is sent to the process with the simulated nodes. The process replies with a response.
type request struct {
	Start      int           // number of nodes to start
	Activation time.Duration // duration of a switch on a node
	Systems    []string      // the system of each node at its start
	Freeze     int           // number of the node to freeze, counted from 1; 0: none
	Thaw       int           // number of the node to thaw, counted from 1; 0: none
}

// response is the reply to a request. Known and Ports are empty if the request started no nodes.
type response struct {
	Known      []string
	Ports      []int
	Handshakes []int // number of SSH handshakes of each node since its start
	Commands   int   // number of commands of all nodes since their start
}

// startNodes starts the process with the simulated nodes, one node for each element of systems.
func startNodes(ctx context.Context, systems []string, activation time.Duration) (*simulatedNodes, error) {
	s := &simulatedNodes{}
	var err error
	if s.cmd, s.to, s.from, err = startProcess(ctx, "nodes"); err != nil {
		return nil, err
	}
	a, err := s.sendRequest(request{Start: len(systems), Systems: systems, Activation: activation})
	s.Known, s.Ports = a.Known, a.Ports
	return s, err
}

func (s *simulatedNodes) sendRequest(o request) (a response, err error) {
	if err = s.to.Encode(o); err == nil {
		err = s.from.Decode(&a)
	}
	return a, err
}

func (s *simulatedNodes) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startProcess starts this program again as another process of the benchmark. name is a key of processes.
// The encoder writes to the process's stdin, and the decoder reads its stdout.
func startProcess(ctx context.Context, name string) (*exec.Cmd, *json.Encoder, *json.Decoder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), processVariable+"="+name)
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

// serveNodes is the main function of the process with the simulated nodes. It reads requests from stdin
// until stdin is closed, and writes a response to stdout for each request.
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
			if n.server, err = sshtest.Start(sshtest.Options{ForbidForwarding: true, Handler: n.handleCommand}); err != nil {
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

// simulatedNode replies to commands like a real node that runs the scripts of the packages activate, closure
// and secrets.
type simulatedNode struct {
	server     *sshtest.Server
	activation time.Duration

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
func (n *simulatedNode) handleCommand(ctx context.Context, e *sshtest.Exec) int {
	argv := e.Argv
	switch {
	case argv[0] == "bash" && len(argv) > 4 && argv[3] == "nixbench":
		_, _ = io.Copy(io.Discard, e.Stdin) // discard the script
		return n.runActivateScript(ctx, e, argv[4:])
	case argv[0] == "sh" && len(argv) > 4 && argv[3] == "upload-keys":
		return exchangeNoKeys(e, argv[4])
	case argv[0] == "sh" && len(argv) > 6 && strings.HasSuffix(argv[4], "/gcroots"):
		return 0
	case argv[0] == "xargs": // a query for missing store paths; the reply is that none is missing
		_, _ = io.Copy(io.Discard, e.Stdin)
		return 0
	}
	fmt.Fprintf(e.Stderr, "no simulated node knows %q\n", argv)
	return 127
}

// runActivateScript executes a command of package activate's script, and returns the exit status.
func (n *simulatedNode) runActivateScript(ctx context.Context, e *sshtest.Exec, argv []string) int {
	out := bufio.NewWriter(e.Stdout)
	defer out.Flush()
	switch argv[0] {
	case "inspect":
		n.writeReport(out, argv[1])
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
		n.writeReport(out, "")
	case "confirm":
		n.mu.Lock()
		n.run = replaceLine(n.run, "phase=waiting", "phase=confirmed")
		n.mu.Unlock()
		n.writeReport(out, "")
	case "confirm-again":
		// Simulate that the node sets the profile and installs the boot loader, in a quarter of the
		// activation time.
		time.Sleep(n.activation / 4)
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
