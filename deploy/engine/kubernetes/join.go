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
)

// describeJoin returns the phase of a node that has not registered yet, and the program that does not work there. It returns an empty string if the phase cannot be read.
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

// describeCertificateRequest returns the state of the last certificate request of a joining node's kubelet,
// such as "not approved". It returns an empty string if there is no request or the API does not answer.
func (e *Engine) describeCertificateRequest(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout/3)
	defer cancel()
	requests, err := e.listObjects(ctx, "get", "certificatesigningrequests")
	if err != nil {
		return ""
	}
	var last gjson.Result
	times := 0
	for _, r := range requests {
		if r.Get("spec.signerName").String() != "kubernetes.io/kube-apiserver-client-kubelet" || requestedName(r) != "system:node:"+node {
			continue
		}
		times++
		if !last.Exists() || creationTime(r).After(creationTime(last)) {
			last = r
		}
	}
	if times == 0 {
		return ""
	}
	text := fmt.Sprintf("its kubelet has asked for a certificate %s, last %v ago: ", formatCount(times, "time"), time.Since(creationTime(last)).Round(time.Second))
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
	return text + e.describeSigners(ctx)
}

// describeSigners returns why no certificate request is signed, if no controller manager is ready. Otherwise
// it returns an empty string. Controller managers approve and sign certificate requests.
func (e *Engine) describeSigners(ctx context.Context) string {
	pods, err := e.listObjects(ctx, "-n", "kube-system", "get", "pods")
	if err != nil {
		return ""
	}
	const signer = "kube-controller-manager"
	text := "; nothing signs it: no " + signer + " runs"
	for _, p := range pods {
		name := p.Get("metadata.name").String()
		switch {
		case !strings.HasPrefix(name, signer+"-"):
		case isReady(p):
			return ""
		default:
			text = "; its signer is not ready: " + name + waitingReason(p)
		}
	}
	return text
}

func creationTime(r gjson.Result) time.Time { return r.Get("metadata.creationTimestamp").Time() }

// requestedName returns the common name in a certificate request, or an empty string if the request is not
// valid.
func requestedName(r gjson.Result) string {
	text, err := base64.StdEncoding.DecodeString(r.Get("spec.request").String())
	if err != nil {
		return ""
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return request.Subject.CommonName
}
