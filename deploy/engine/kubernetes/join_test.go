package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// request returns a certificate request of the kubelet of a node that joins with a bootstrap token.
func request(t *testing.T, node string, ago time.Duration, status object) object {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return object{"metadata": object{"creationTimestamp": time.Now().Add(-ago).UTC().Format(time.RFC3339)},
		"spec":   object{"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "username": "system:bootstrap:abcdef", "request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		"status": status}
}

// For a node that does not register, the error contains its phase and the state of its certificate request.
func TestNodeDoesNotRegister(t *testing.T) {
	for name, c := range map[string]struct {
		status  object
		manager string // why it waits
		want    string
	}{
		"not approved":         {object{}, "CrashLoopBackOff", "not approved; its signer is not ready: kube-controller-manager-cp-1 (CrashLoopBackOff)"},
		"no signer runs":       {object{}, "", "not approved; nothing signs it: no kube-controller-manager runs\n"},
		"the signer is slow":   {object{"conditions": []object{{"type": "Approved", "message": "auto"}}}, "ready", "approved, not signed\n"},
		"it is denied":         {object{"conditions": []object{{"type": "Denied", "message": "by hand"}}}, "", "denied: by hand\n"},
		"it has a certificate": {object{"conditions": []object{{"type": "Approved", "message": "auto"}}, "certificate": "x"}, "", "issued\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}, kubelets: map[string]kubelet{"w-1": {"auto-restart", time.Second, time.Hour}}}
			cluster.requests = []object{request(t, "w-1", time.Minute, object{"certificate": "old"}), request(t, "w-1", 5*time.Second, c.status), request(t, "w-2", time.Second, object{"certificate": "x"})}
			if c.manager == "ready" {
				cluster.pods = []object{{"metadata": object{"name": "kube-controller-manager-cp-1"}, "status": object{"conditions": []object{{"type": "Ready", "status": "True"}}}}}
			} else if c.manager != "" {
				cluster.pods = []object{{"metadata": object{"name": "kube-controller-manager-cp-1"},
					"status": object{"phase": "Running", "containerStatuses": []object{{"state": object{"waiting": object{"reason": c.manager}}}}}}}
			}
			e := cluster.engine("cp-1", "w-1")
			nodes := e.Conditions(engine.CheckOptions{})[1]
			const why = "w-1, at join (the API does not answer yet), kubelet.service ends again and again: the log of the kubelet"
			if err := nodes.Probe(t.Context()); err == nil || err.Error() != "not registered: "+why {
				t.Errorf("%s: %v", name, err)
			}
			if got := nodes.Explain(t.Context()); !strings.Contains(got+"\n", "\n  its kubelet has asked for a certificate 2 times, last 5s ago: "+c.want) {
				t.Errorf("%s: %q is not in\n%s", name, c.want, got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := e.WaitReady(ctx, "w-1", quiet)
			if err == nil || !strings.Contains(err.Error(), "it is not registered: it is at join") || !strings.Contains(err.Error(), "kubelet: the log of kubelet.service") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
