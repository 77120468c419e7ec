package kubernetes

import (
	"strings"
	"testing"
	"time"
)

// Commands that change nothing report an API that does not answer, and apply names a kubelet that cannot work soon.
func TestBrokenMembers(t *testing.T) {
	g := newGuestCluster(t)
	try := func(want int, limit time.Duration, args string, texts ...string) {
		t.Helper()
		began := time.Now()
		code, out, diag := g.try(strings.Fields(args)...)
		took := time.Since(began)
		t.Logf("%s: exit code %d after %.1f s", args, code, took.Seconds())
		if code != want || took > limit {
			t.Errorf("%s: exit code %d after %v, want %d within %v\n%s", args, code, took, want, limit, diag)
		}
		for _, text := range texts {
			if !strings.Contains(out+diag, text) {
				t.Errorf("%s does not say %q:\n%s%s", args, text, out, diag)
			}
		}
	}
	g.writeHive(1, 1, "")
	g.run("apply")
	try(0, time.Minute, "status --check")

	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	g.runOn("cp-1", "mv "+manifest+" /root/")
	g.waitForOutput(time.Minute, "cp-1", admin+"get --raw /readyz > /dev/null 2>&1 || echo down", "down")
	try(9, time.Minute, "status --check", "the state of the members is unknown: kubernetes: ")
	try(9, time.Minute, "plan --exit-code", "the state of the members is unknown: kubernetes: ")
	g.runOn("cp-1", "mv /root/kube-apiserver.yaml "+manifest)
	g.waitForOutput(2*time.Minute, "cp-1", admin+"get --raw /readyz", "ok")

	g.runOn("w-1", "systemctl stop kubelet")
	try(0, 90*time.Second, "apply", "w-1: kubelet.service is stopped; nixbench starts it")

	// The kubelet has lost its certificate.
	g.runOn("w-1", "systemctl stop kubelet; rm -r /var/lib/kubelet/pki; systemctl start kubelet")
	try(9, 150*time.Second, "apply", "w-1: kubelet.service ends again and again: ")
}
