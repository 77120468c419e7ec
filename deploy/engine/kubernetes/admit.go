package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Admit implements [engine.Admitter]. It gives the node the credentials for the join. If the cluster exists, Admit starts the
// join of the node. If no control plane has been set up, Admit permits the first control plane to create the cluster. A node
// needs this permission because it cannot distinguish a cluster that does not exist from a cluster that is down.
func (e *Engine) Admit(ctx context.Context, node string) error {
	all := e.NodesOf(ControlPlane)
	switch {
	case !e.Has(node):
		return nil
	case len(all) == 0:
		return failure.On(node, errors.New("it cannot join, because the hive has no control plane; import modules/kubernetes/control-plane.nix in a role"))
	}
	s, err := e.settings()
	if err == nil && s.JoinConfig != "" {
		err = e.sendCredentials(ctx, node, s.JoinConfig)
	}
	if err != nil {
		return failure.On(node, fmt.Errorf("give it the credentials to join: %w", err))
	}
	_, err = e.Nodes(ctx)
	switch {
	case err == nil: // the node may have been reset without a new machine, and then its systemd unit for the join does not run
		_, err = e.Command(ctx, node, "systemctl", "start", "--no-block", setupUnit)
		return err
	case errors.Is(err, ErrNoControlPlane) && (node == all[0] || e.phaseOf(ctx, all[0]) == phaseWaiting):
		// Permit the first control plane to create the cluster, even when Admit was called for another node: an earlier
		// admission of the first control plane may have failed because other control planes were unreachable. The permission
		// is a file in a tmpfs, so a machine that is recreated later does not have it.
		if _, err = e.Command(ctx, all[0], "install", "-D", "-m", "0600", "/dev/null", s.Permit); err != nil {
			return failure.On(all[0], fmt.Errorf("permit it to create the cluster: %w", err))
		}
		return nil
	case errors.Is(err, ErrNoControlPlane), e.isBeingCreated(ctx):
		return nil // the node joins as soon as the cluster exists
	}
	return failure.On(node, fmt.Errorf("it cannot join: %w", err))
}

// nodeUser is the prefix of the user name with which a node authenticates to the API: system:node:NAME.
const nodeUser = "system:node:"

// sendCredentials writes a kubeconfig for the join to a file on the node. The user in the kubeconfig is the node itself: the API
// server allows this user to request a certificate for the kubelet of this node, and for no other node. A bootstrap token would
// allow every node that has the token to become any other node. The node adds the address of the API server to the file.
func (e *Engine) sendCredentials(ctx context.Context, node, file string) error {
	authority, certificate, key, err := e.Issue("cluster-ca", nodeUser+node, "system:nodes")
	if err != nil {
		return err
	}
	a := Access{Cluster: e.Name, Authority: authority, credentials: credentials{Certificate: certificate, Key: key}}
	kubeconfig, err := a.Kubeconfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, engine.CommandTimeout)
	defer cancel()
	const script = `install -D -m 0600 /dev/null "$1.new" && cat >"$1.new" && mv "$1.new" "$1"`
	_, err = e.Run(ctx, node, bytes.NewReader(kubeconfig), "sh", "-c", script, "sh", file)
	return err
}

// isBeingCreated reports whether a control plane is creating the cluster now. A control plane in phaseWaiting does not count,
// because it may still wait for nixbench's permission.
func (e *Engine) isBeingCreated(ctx context.Context) bool {
	return slices.ContainsFunc(e.NodesOf(ControlPlane), func(node string) bool {
		phase := e.phaseOf(ctx, node)
		return phase != "" && phase != "ready" && phase != phaseWaiting
	})
}

func (e *Engine) phaseOf(ctx context.Context, node string) string {
	phase, _ := e.readPhase(ctx, node)
	return phase
}

const (
	// setupUnit is the systemd unit on a node that creates the cluster, joins the node, and applies new settings.
	setupUnit = "nixbench-kubernetes.service"
	// progressFile is the file on a node to which setupUnit writes the phase of the node, such as join.
	progressFile = "/var/lib/nixbench/kubernetes.json"
	// phaseWaiting is the phase of a deployed node that waits for the permission to create the cluster, or for another node.
	phaseWaiting = "waiting"
)

// readPhase returns the phase of a node, such as "join", and the first line of the message of that phase, in
// parentheses. It returns two empty strings if the phase cannot be read.
func (e *Engine) readPhase(ctx context.Context, node string) (phase, text string) {
	out, err := e.Command(ctx, node, "cat", progressFile)
	if err != nil {
		return "", ""
	}
	progress, _ := ParseJSON(out)
	if message, _, _ := strings.Cut(strings.TrimSpace(progress.Get("message").String()), "\n"); message != "" {
		text = " (" + message + ")"
	}
	return progress.Get("phase").String(), text
}

// describeJoin returns the phase (such as join) of a node that has not registered yet, and which program on the node does not
// work. It returns an empty string if the phase cannot be read.
func (e *Engine) describeJoin(ctx context.Context, node string) string {
	phase, text := e.readPhase(ctx, node)
	if phase == "" {
		return ""
	}
	if fault := engine.Inspect(ctx, e, node, false); fault != nil {
		text += ", " + fault.Error()
	}
	return phase + text
}
