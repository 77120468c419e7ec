package kubernetes

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// The key that API servers encrypt with is rotated while they run. During and after the rotation
// each of them can read all secrets, and so can a control plane that joins afterwards.
func TestEncryptionKeyIsRotated(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(2, 0, "")
	g.run("apply")
	g.checkNodes("cp-1 Ready;cp-2 Ready;")
	keyOf := func(secret string) string {
		t.Helper()
		return g.runOn("cp-1", `pki=/etc/kubernetes/pki/etcd
etcdctl --endpoints=https://127.0.0.1:2379 --cacert=$pki/ca.crt --cert=$pki/server.crt --key=$pki/server.key get --print-value-only /registry/secrets/default/`+secret+` | grep -a -o '^k8s:enc:secretbox:v1:key[0-9]*' | head -n 1`)
	}
	write := func(node, name string) {
		t.Helper()
		g.runOn(node, admin+"create secret generic "+name+" --from-literal=word="+name)
	}
	read := func(node string, names ...string) {
		t.Helper()
		for _, name := range names {
			if got := g.runOn(node, admin+"get secret "+name+" -o jsonpath={.data.word} | base64 -d"); got != name {
				t.Errorf("%s reads %q of the secret %s", node, got, name)
			}
		}
	}
	const key1, key2 = "k8s:enc:secretbox:v1:key1", "k8s:enc:secretbox:v1:key2"
	write("cp-1", "first")
	if got := keyOf("first"); got != key1 {
		t.Fatalf("stored with %q", got)
	}

	// During the rotation both servers are asked for all secrets. They restart, but must not fail to
	// decrypt a secret.
	stop, misread := make(chan struct{}), make(chan string, 1000)
	var watching sync.WaitGroup
	for _, node := range []string{"cp-1", "cp-2"} {
		watching.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
				}
				out, err := g.tryOn(node, admin+"get secrets -A 2>&1")
				if err != nil && (strings.Contains(out, "decrypt") || strings.Contains(out, "transform")) {
					misread <- node + ": " + out
				}
			}
		})
	}
	g.run("secrets", "rotate", "kubernetes-encryption")
	if code, _, diag := g.try("secrets", "rotate", "kubernetes-encryption"); code != 9 || !strings.Contains(diag, "these nodes do not run with it: cp-1, cp-2") {
		t.Errorf("a second rotation before an apply: exit code %d\n%s", code, diag)
	}
	g.run("apply")
	write("cp-2", "second")
	if got := keyOf("second"); got != key1 {
		t.Errorf("the new key encrypts before all servers have it: %q", got)
	}
	g.run("secrets", "rotate", "kubernetes-encryption")
	g.run("apply")
	write("cp-1", "third")
	if got := keyOf("third"); got != key2 {
		t.Errorf("the new key is not used: %q", got)
	}
	read("cp-1", "first", "second", "third")
	read("cp-2", "first", "second", "third")
	close(stop)
	watching.Wait()
	close(misread)
	for text := range misread {
		t.Error(text)
	}
	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 2 {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	g.writeHive(3, 0, "")
	g.run("apply")
	g.checkNodes("cp-1 Ready;cp-2 Ready;cp-3 Ready;")
	read("cp-3", "first", "second", "third")
	write("cp-3", "fourth")
	if got := keyOf("fourth"); got != key2 {
		t.Errorf("a new control plane stores with %q", got)
	}
	read("cp-1", "fourth")

	// docs/kubernetes.md has this command to encrypt stored secrets with the new key.
	g.runOn("cp-2", admin+"get secrets -A -o json | "+admin+"replace -f - >&2")
	if got := keyOf("first"); got != key2 {
		t.Errorf("after all secrets were rewritten, one is stored with %q", got)
	}
	g.run("destroy", "--yes")
}
