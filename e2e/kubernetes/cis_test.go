package kubernetes

import (
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Items that hold only with hardening.
var cisHardened = []string{"1.2.15", "1.2.16", "1.2.17", "1.2.18", "1.2.19", "1.3.2", "1.4.1", "3.2.1", "3.2.2", "4.2.14"}

// A cluster without hardening is hardened by a rolling change, during which no request fails.
// Afterwards the items of docs/security.md hold.
func TestHardening(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	// No other test runs TLS 1.2 with the cipher suites that the module chooses.
	g.writeHive(1, 2, `profiling = true; audit.enable = false; seccompDefault = false; tls.minVersion = "1.2"; settings.kubelet.enableSystemLogHandler = true;`)
	g.run("apply")
	g.startRequests()
	g.checkRequests("before any change")
	g.copyCertificates()
	g.checkCIS("without hardening", cisHardened...)
	g.checkTLS("1.2", 0)
	g.checkKubelets(true)
	g.checkSeccomp("default", "0")

	g.writeHive(1, 2, "")
	began := time.Now()
	_, out, diag := g.try("apply", "--json")
	t.Logf("hardened in %.1f s", time.Since(began).Seconds())
	g.checkRequests("hardening")
	g.checkOrder(out+diag, "cp-1", "w-1", "w-2")
	g.checkUncordoned("cp-1", "w-1", "w-2")
	before := g.nodeStates("cp-1", "w-1", "w-2")
	if _, _, diag := g.try("apply"); strings.Count(diag, "unchanged") < 3 || g.nodeStates("cp-1", "w-1", "w-2") != before {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	g.sendAuditedRequests()
	g.checkCIS("with hardening")
	g.checkTLS("1.2", 35)
	g.checkTLS("1.3", 0)
	g.checkKubelets(false)
	g.checkSeccomp("default", "2")
	g.checkSeccomp("unconfined", "0")
	g.checkAnonymous()
	g.run("check", "--deep")
}

// copyCertificates writes the certificates of an administrator and of a client of etcd to /run/cis
// on cp-1, where cisFunctions read them.
func (g *guestCluster) copyCertificates() {
	g.Helper()
	g.runOn("cp-1", `mkdir -p -m 0700 /run/cis && cd /run/cis && umask 077
`+admin+`config view --raw -o json | jq -r '.users[0].user["client-certificate-data"]' | base64 -d >admin.crt
`+admin+`config view --raw -o json | jq -r '.users[0].user["client-key-data"]' | base64 -d >admin.key
cp /etc/kubernetes/pki/etcd/healthcheck-client.crt client.crt && cp /etc/kubernetes/pki/etcd/healthcheck-client.key client.key`)
}

// checkCIS checks all items on the nodes. Those of except must not hold.
func (g *guestCluster) checkCIS(when string, except ...string) {
	g.Helper()
	for node, items := range map[string][]cisItem{"cp-1": slices.Concat(cisControlPlane, cisEveryNode), "w-1": cisEveryNode} {
		configz := g.runOn("cp-1", admin+"get --raw /api/v1/nodes/"+node+"/proxy/configz | jq -c .kubeletconfig")
		var script strings.Builder
		fmt.Fprintf(&script, "configz=$(echo %s | base64 -d)\n%s", base64.StdEncoding.EncodeToString([]byte(configz)), cisFunctions)
		for _, item := range items {
			fmt.Fprintf(&script, "( %s\n) >/run/cis-out 2>&1 </dev/null; echo %s $? $(base64 -w 0 /run/cis-out)\n", item.check, item.id)
		}
		out, err := g.tryOnWithInput(node, script.String(), "bash -s")
		lines := strings.Split(out, "\n")
		if err != nil || len(lines) != len(items) {
			g.Fatalf("%s: %d answers for %d items: %v\n%s", node, len(lines), len(items), err, out)
		}
		for i, item := range items {
			fields := append(strings.Fields(lines[i]), "")
			text, err := base64.StdEncoding.DecodeString(fields[2])
			if err != nil || fields[0] != item.id {
				g.Fatalf("%s: %q for item %s: %v", node, lines[i], item.id, err)
			}
			holds, found := fields[1] == "0", strings.TrimSpace(string(text))
			want := item.found == "" && !slices.Contains(except, item.id)
			switch {
			case holds != want:
				g.Errorf("%s: %s: item %s holds: %v, want %v; found:\n%s", when, node, item.id, holds, want, found)
			case item.found != "" && found != strings.TrimSpace(strings.ReplaceAll(item.found, "$NODE", node)):
				g.Errorf("%s: %s: item %s does not hold, but for another reason: found %q, want %q", when, node, item.id, found, item.found)
			}
		}
	}
}

// checkTLS connects to each server with only this version of TLS, and checks curl's exit code.
func (g *guestCluster) checkTLS(version string, code int) {
	g.Helper()
	want := ""
	for _, port := range []string{"6443", "10257", "10259", "2379", "2380", "10250"} {
		want += fmt.Sprintf("%s: %d\n", port, code)
	}
	got := g.runOn("cp-1", cisFunctions+`peers=$(argument etcd listen-peer-urls)
for server in 127.0.0.1:6443 127.0.0.1:10257 127.0.0.1:10259 127.0.0.1:2379 "${peers#https://}" 127.0.0.1:10250; do handshake "$server" --tlsv`+version+" --tls-max "+version+"; done")
	if got+"\n" != want {
		g.Errorf("handshakes with TLS %s: exit codes of curl:\n%s\nwant\n%s", version, got, want)
	}
}

// checkKubelets wants the kubelets to serve their profiles and the node's /var/log, or not.
// `kubectl logs` and `exec` work in either case.
func (g *guestCluster) checkKubelets(serve bool) {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1"} {
		for _, path := range []string{"debug/pprof/cmdline", "logs/"} {
			out, err := g.tryOn("cp-1", admin+"get --raw /api/v1/nodes/"+node+"/proxy/"+path+" 2>&1")
			if serve && err != nil || !serve && (err == nil || !strings.Contains(out, "MethodNotAllowed")) {
				g.Errorf("%s: the kubelet's /%s: %v, want it to be served: %v\n%.300s", node, path, err, serve, out)
			}
		}
	}
	pod := g.runOn("cp-1", admin+"get pods -l app=web -o name | head -n 1")
	g.runOn("cp-1", admin+"logs "+pod+" && "+admin+"exec "+pod+" -- /probe get http://127.0.0.1:8080/")
}

// checkSeccomp wants the process of a new container to be filtered ("2") or not ("0").
func (g *guestCluster) checkSeccomp(profile, want string) {
	g.Helper()
	context := ""
	if profile == "unconfined" {
		context = "securityContext: { seccompProfile: { type: Unconfined } }, "
	}
	pod := `apiVersion: v1
kind: Pod
metadata: { name: seccomp }
spec: { nodeName: w-1, terminationGracePeriodSeconds: 0, ` + context + `containers: [ { name: c, image: "localhost/probe:1", args: [ serve ] } ] }
`
	if out, err := g.tryOnWithInput("cp-1", pod, admin+"apply -f - && "+admin+"wait --for=condition=Ready --timeout=30s pod/seccomp"); err != nil {
		g.Fatalf("a pod with the profile %s: %v\n%s", profile, err, out)
	}
	uid := g.runOn("cp-1", admin+"get pod seccomp -o jsonpath={.metadata.uid}")
	got := g.runOn("w-1", `for file in $(grep -ls "pod`+strings.ReplaceAll(uid, "-", "_")+`" /proc/[0-9]*/cgroup); do
  process=${file%/cgroup}
  [ "$(cat $process/comm)" != probe ] || sed -n 's/^Seccomp:[[:space:]]*//p' $process/status
done`)
	if got != want {
		g.Errorf("a pod with the profile %s has the seccomp mode %q, want %s", profile, got, want)
	}
	g.runOn("cp-1", admin+"delete pod seccomp --wait")
}

// checkAnonymous wants requests without credentials to get only what joining and probes need.
func (g *guestCluster) checkAnonymous() {
	g.Helper()
	got := g.runOn("cp-1", cisFunctions+`for path in /livez /version /api/v1/namespaces/kube-public/configmaps/cluster-info /api/v1/secrets /api/v1/namespaces/kube-system/configmaps /api/v1/nodes /metrics /debug/pprof/; do echo "$(anonymous 6443 $path) $path"; done
for port in 10257 10259 10250; do echo "$(anonymous $port /metrics) $port"; done`)
	want := `200 /livez
200 /version
200 /api/v1/namespaces/kube-public/configmaps/cluster-info
403 /api/v1/secrets
403 /api/v1/namespaces/kube-system/configmaps
403 /api/v1/nodes
403 /metrics
403 /debug/pprof/
403 10257
403 10259
401 10250`
	if got != want {
		g.Errorf("requests without credentials:\n%s\nwant\n%s", got, want)
	}
}

// sendAuditedRequests sends the requests that item 3.2.2 looks for in the audit log.
func (g *guestCluster) sendAuditedRequests() {
	g.Helper()
	g.runOn("cp-1", admin+"create secret generic cis --from-literal=password=cis-canary-content && "+
		admin+"get secret cis -o yaml >/dev/null && "+
		admin+"create configmap cis --from-literal=password=cis-canary-content && "+
		admin+"create deployment cis --image=localhost/probe:1 --replicas=0 && "+
		admin+"exec deployment/web -- /probe get http://127.0.0.1:8080/")
}

// docs/security.md has the items that do not hold, with the reason, and those that need an option.
func TestCISDocument(t *testing.T) {
	data, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9]+(?:\.[0-9]+)+) \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(string(data), -1) {
		if documented[m[1]] != "" {
			t.Errorf("item %s is there twice", m[1])
		}
		if documented[m[1]] = m[3]; len(m[2]) < 10 {
			t.Errorf("item %s has no description: %q", m[1], m[2])
		}
	}
	for _, item := range slices.Concat(cisControlPlane, cisEveryNode) {
		got := documented[item.id]
		delete(documented, item.id)
		switch {
		case item.found != "" && (!strings.HasPrefix(got, "no: ") || len(got) < 20):
			t.Errorf("item %s does not hold, and the document says %q, want \"no: \" and the reason", item.id, got)
		case item.found == "" && item.option != "" && !strings.HasPrefix(got, "yes, with `"+item.option+"`"):
			t.Errorf("item %s holds with an option, and the document says %q, want \"yes, with `%s`\"", item.id, got, item.option)
		case item.found == "" && item.option == "" && got != "":
			t.Errorf("item %s holds, and the document says %q, want no line", item.id, got)
		}
	}
	if len(documented) > 0 {
		t.Errorf("the document has items that the test does not have: %q", documented)
	}
}
