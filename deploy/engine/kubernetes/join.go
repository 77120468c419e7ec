package kubernetes

import (
	"context"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
)

const (
	// setupUnit is the systemd unit on a node that creates the cluster, joins the node, and applies new settings.
	setupUnit = "nixbench-kubernetes.service"
	// progressFile is the file on a node to which setupUnit writes the phase of the node, such as join.
	progressFile = "/var/lib/nixbench/kubernetes.json"
	// phaseWaiting is the phase of a deployed node that waits for the permission to create the cluster, or for
	// another node.
	phaseWaiting = "waiting"
)

// readPhase returns the phase of a node, such as "join", and the first line of the message of that phase, in
// parentheses. It returns two empty strings if the phase cannot be read.
func (k *kubeadm) readPhase(ctx context.Context, node string) (phase, text string) {
	out, err := k.Command(ctx, node, "cat", progressFile)
	if err != nil {
		return "", ""
	}
	progress, _ := api.ParseJSON(out)
	if message, _, _ := strings.Cut(strings.TrimSpace(progress.Get("message").String()), "\n"); message != "" {
		text = " (" + message + ")"
	}
	return progress.Get("phase").String(), text
}

// describeJoin returns the phase (such as join) of a node that has not registered yet, and which program on the node does not
// work. It returns an empty string if the phase cannot be read.
func (e *kubeadm) describeJoin(ctx context.Context, node string) string {
	phase, text := e.readPhase(ctx, node)
	if phase == "" {
		return ""
	}
	if fault := engine.Inspect(ctx, e, node, false); fault != nil {
		text += ", " + fault.Error()
	}
	return phase + text
}
