package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// newFleet returns a fleet that can connect to the nodes of the hive. store is nil for a command
// that only reads the state.
func (a *app) newFleet(hive *nixeval.Hive, f fleetFlags, store *state.Store) *fleet.Fleet {
	if store != nil {
		return a.openFleet(hive, f, store)
	}
	recorded, err := a.dir.Load()
	if err != nil {
		return a.openFleet(hive, f, unreadableState{err})
	}
	return a.openFleet(hive, f, recorded)
}

// openFleet returns a fleet whose machines are those in recorded.
func (a *app) openFleet(hive *nixeval.Hive, f fleetFlags, recorded fleet.RecordedMachines) *fleet.Fleet {
	return fleet.New(hive, fleet.Options{
		Options: remote.Options{AcceptNewHostKeys: f.acceptNew, Prompt: a.newPrompt(), Send: a.sendEvent, Down: func(ctx context.Context, node string) string {
			m, cluster, err := recorded.MachineOf(node)
			if err != nil {
				return ""
			}
			return machine.DescribeDown(ctx, a.connect(nil), hive.ClusterName(), node, m, cluster)
		}},
		Programs:  a.sshPrograms,
		SSHConfig: os.Getenv("SSH_CONFIG_FILE"), // Colmena uses the same variable
		ClientKey: a.dir.ClientKey(), Recorded: recorded,
	})
}

// unreadableState is a state whose file cannot be read.
type unreadableState struct{ err error }

func (u unreadableState) MachineOf(string) (state.Machine, *state.Cluster, error) {
	return state.Machine{}, nil, u.err
}

// selectRemoteNodes returns the nodes that nixbench can connect to. It omits named nodes with a null
// targetHost, as Colmena does: these nodes are for apply-local. It fails if a node's deployment
// options are broken, if two nodes have the same address, or if no node remains.
func (a *app) selectRemoteNodes(hive *nixeval.Hive, nodes []nixeval.Node) ([]nixeval.Node, error) {
	broken := map[string]*nixeval.NixError{}
	var out []nixeval.Node
	var local, configured []string
	taken := map[string]string{} // address → name of the node with that address
	for _, n := range nodes {
		if err := hive.Broken[n.Unit]; err != nil {
			broken[n.Unit] = err
			continue
		}
		if n.Role == "" && len(hive.Unit(n.Unit).Deployment.TargetHosts) == 0 {
			local = append(local, n.Name)
			continue
		}
		if hive.Unit(n.Unit).Deployment.SSHConfig {
			configured = append(configured, n.Name)
		}
		for _, at := range targetAddresses(hive.Unit(n.Unit).Deployment) {
			if other := taken[at]; other != "" && other != n.Name {
				return nil, newUsageError("%s and %s have the same deployment.targetHost; each would replace the system of the other", other, n.Name)
			}
			taken[at] = n.Name
		}
		out = append(out, n)
	}
	if len(broken) > 0 {
		return nil, &nixeval.EvalError{Units: broken}
	}
	if len(local) > 0 {
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(),
			Text: fmt.Sprintf("omitted, because deployment.targetHost is null: %s; use apply-local on them", strings.Join(local, ", "))})
	}
	if len(configured) > 0 {
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(),
			Text: fmt.Sprintf("hosts of the SSH configuration, with its address, port and user, because their nixosConfigurations do not declare deployment.targetHost: %s", strings.Join(configured, ", "))})
	}
	if len(out) == 0 {
		return nil, newUsageError("all selected nodes have a null deployment.targetHost; use apply-local on each")
	}
	return out, nil
}

// targetAddresses returns the hosts of a node, with the port.
func targetAddresses(d nixeval.Deployment) []string {
	port := 0
	if d.TargetPort != nil {
		port = *d.TargetPort
	}
	var out []string
	for _, host := range d.TargetHosts {
		out = append(out, fmt.Sprintf("%s:%d", host, port))
	}
	return out
}

// newPrompt returns a function that asks the user on the terminal, one question at a time. It
// returns nil if there is no terminal.
func (a *app) newPrompt() remote.Prompt {
	if a.json || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	var mu sync.Mutex
	return func(ctx context.Context, question string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil { // ctx may have ended while another question was open
			return nil, context.Cause(ctx)
		}
		var answer []byte
		var err error
		a.view.Pause(func() {
			fmt.Fprint(a.view.Stderr(), strings.TrimRight(question, ": ")+": ") // most servers end their questions with a colon
			answer, err = readPassword(ctx, int(os.Stdin.Fd()))
			fmt.Fprintln(a.view.Stderr())
		})
		return answer, err
	}
}

// readPassword reads a line without echo. When ctx ends, it restores the terminal's echo and
// returns, but the goroutine that reads continues, because the read cannot be interrupted.
func readPassword(ctx context.Context, fd int) ([]byte, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	type read struct {
		answer []byte
		err    error
	}
	done := make(chan read, 1)
	go func() {
		answer, err := term.ReadPassword(fd)
		done <- read{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), term.Restore(fd, before))
	}
}
