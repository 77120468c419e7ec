package kubernetes

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

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

// describeCertificateRequest returns the state of the last certificate request of a joining node's kubelet, such as "not
// approved". It returns an empty string if there is no request, or if the API does not answer. It finds the request by the node
// name in the request, because the user of the request may be a bootstrap token.
func (k *kubeadm) describeCertificateRequest(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, engine.CommandTimeout/3)
	defer cancel()
	requests, _ := k.List(ctx, "get", "certificatesigningrequests", "--sort-by=.metadata.creationTimestamp")
	var last gjson.Result
	times := 0
	for _, r := range requests {
		if r.Get("spec.signerName").String() != "kubernetes.io/kube-apiserver-client-kubelet" || requestedName(r) != nodeUser+node {
			continue
		}
		times, last = times+1, r
	}
	if times == 0 {
		return ""
	}
	text := fmt.Sprintf("its kubelet has asked for a certificate %s, last %v ago: ", api.Count(times, "time"), time.Since(last.Get("metadata.creationTimestamp").Time()).Round(time.Second))
	condition := func(kind string) gjson.Result {
		return last.Get(`status.conditions.#(type=="` + kind + `").message`)
	}
	switch {
	case condition("Denied").Exists():
		return text + "denied: " + condition("Denied").String()
	case condition("Failed").Exists():
		return text + "failed: " + condition("Failed").String()
	case last.Get("status.certificate").Exists():
		return text + "issued"
	case condition("Approved").Exists():
		text += "approved, not signed"
	default:
		text += "not approved"
	}
	return text + k.describeSigners(ctx)
}

// requestedName returns the common name in a certificate request, or an empty string if the request is not valid.
func requestedName(r gjson.Result) string {
	text, _ := base64.StdEncoding.DecodeString(r.Get("spec.request").String()) // without a PEM block if it is not valid
	if block, _ := pem.Decode(text); block != nil {
		if request, err := x509.ParseCertificateRequest(block.Bytes); err == nil {
			return request.Subject.CommonName
		}
	}
	return ""
}

// describeSigners returns the reason why no certificate request is signed if no controller manager is ready, because controller
// managers approve and sign the requests. Otherwise it returns an empty string.
func (k *kubeadm) describeSigners(ctx context.Context) string {
	pods, err := k.List(ctx, "-n", "kube-system", "get", "pods")
	if err != nil {
		return ""
	}
	const signer = "kube-controller-manager"
	text := "; nothing signs it: no " + signer + " runs"
	for _, p := range pods {
		name := api.NodeName(p)
		switch {
		case !strings.HasPrefix(name, signer+"-"):
		case api.IsReady(p):
			return ""
		default:
			text = "; its signer is not ready: " + name + api.WaitingReason(p)
		}
	}
	return text
}
