package kubernetes

import (
	"strings"
	"testing"
	"time"
)

// While no controller signs certificates, a new node cannot join: apply fails and reports the
// reason. The next apply joins the node.
func TestJoinWithoutSigner(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(1, 1, "")
	g.run("apply")
	// Without kube-controller-manager, certificates are neither approved nor signed.
	g.runOn("cp-1", "mv /etc/kubernetes/manifests/kube-controller-manager.yaml /root/")
	g.waitForOutput(time.Minute, "cp-1", "pgrep -c kube-controller; true", "0")
	code, _, diag := g.try("apply", "--set", "roles.w.count=2", "--timeout", "check=45s")
	if code != 9 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"not registered: w-2, at join", "w-2: join", "  kubelet: "} {
		if !strings.Contains(diag, want) {
			t.Errorf("%q is not in\n%s", want, diag)
		}
	}
	// The machine of w-2 is killed; the next apply starts it.
	if out, err := g.l.Command(t.Context(), "virsh", "-q", "-c", g.l.URIs["lxc"], "destroy", "bench-w-2").CombinedOutput(); err != nil {
		t.Fatalf("virsh destroy: %v\n%s", err, out)
	}
	t.Logf("requests:\n%s", g.runOn("cp-1", admin+"get csr"))
	g.runOn("cp-1", "mv /root/kube-controller-manager.yaml /etc/kubernetes/manifests/")
	began := time.Now()
	g.run("apply", "--set", "roles.w.count=2")
	t.Logf("joined after %.1f s", time.Since(began).Seconds())
	g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
}
