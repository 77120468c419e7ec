package volcano

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A cluster with Volcano starts the pods of a gang together, or none of them. Its webhooks have a certificate of an authority that nixbench has
// generated, whose key is only where it must be.
func TestVolcano(t *testing.T) {
	c := newCluster(t)
	manifest, err := filepath.Abs(filepath.Join(os.Getenv("NIXBENCH_VOLCANO_SRC"), "installer/volcano-development.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The machines' image contains the images.
	c.writeHive(fmt.Sprintf("volcano = { enable = true; manifest = %s; images = [ ]; };", manifest))
	began := time.Now()
	c.Run("apply")
	t.Logf("from an empty hypervisor to 1 + 2 nodes with Volcano: %.1f s", time.Since(began).Seconds())
	c.CheckOutput("cp-1", admin+`-n volcano-system get deployments -o json | jq -r '.items[] | select(.status.readyReplicas == 1) | .metadata.name' | tr '\n' ' '`, "volcano-admission volcano-controllers volcano-scheduler")
	c.CheckOutput("cp-1", admin+"get queue default -o jsonpath='{.metadata.name}'", "default")
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 3 {
		t.Error("a second apply is not a no-op")
	}

	// The workers have six places together.
	for _, node := range []string{"w-1", "w-2"} {
		c.RunOn("cp-1", admin+"patch node "+node+` --subresource=status --type=merge -p '{"status":{"capacity":{"example.org/place":"3"}}}'`)
		c.WaitForOutput(30*time.Second, "cp-1", admin+"get node "+node+` -o jsonpath='{.status.allocatable.example\.org/place}'`, "3")
	}
	began = time.Now()
	if err := c.createGang("fits", 4, 4); err != nil {
		t.Fatal(err)
	}
	c.WaitForOutput(60*time.Second, "cp-1", nodesOf("fits"), "w-1 w-2")
	c.WaitForOutput(60*time.Second, "cp-1", admin+"get vcjob fits -o jsonpath='{.status.state.phase} {.status.running}'", "Running 4")
	t.Logf("a gang of 4 pods runs: %.1f s", time.Since(began).Seconds())

	// Two pods of this gang would fit beside the pods of the first gang, but not all six.
	if err := c.createGang("large", 6, 6); err != nil {
		t.Fatal(err)
	}
	c.WaitForOutput(60*time.Second, "cp-1", admin+`get podgroups.scheduling.volcano.sh -o json | jq -r '[ .items[] | select(.metadata.name | startswith("large")) | .status.conditions[]? | select(.type == "Unschedulable") ] | length > 0'`, "true")
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		if got := c.RunOn("cp-1", nodesOf("large")); got != "none" && got != "" {
			t.Fatalf("a gang that does not fit has pods on %q", got)
		}
	}
	c.CheckOutput("cp-1", admin+"get vcjob large -o jsonpath='{.status.state.phase}'", "Pending")
	c.RunOn("cp-1", admin+"delete vcjob fits --wait=false")
	c.WaitForOutput(60*time.Second, "cp-1", admin+"get vcjob large -o jsonpath='{.status.state.phase} {.status.running}'", "Running 6")

	// The webhook that validates jobs answers, so its certificate is valid.
	if err := c.createGang("invalid", 2, 3); err == nil || !strings.Contains(err.Error(), "validatejob.volcano.sh") {
		t.Errorf("a Job that needs more pods than it has: %v", err)
	}
	c.checkKeys()

	// The check names the program that is missing.
	c.RunOn("cp-1", admin+"-n volcano-system delete deployment volcano-controllers")
	if code, _, diag := c.Try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "deployment.apps/volcano-controllers is Available: not after") || !strings.Contains(diag, "it does not exist") {
		t.Errorf("check without Volcano's controller: exit code %d", code)
	}
}

// checkKeys searches for the key of the webhooks' certificate and that of the authority. Each search also finds a text that is there.
func (c *cluster) checkKeys() {
	c.Helper()
	// A line of the key in the Secret, and one of the key of the authority on the node.
	const lines = `leaf=$(` + admin + `-n volcano-system get secret volcano-admission-secret -o jsonpath='{.data.tls\.key}' | base64 -d | sed -n 2p)
authority=$(sed -n 2p /var/lib/nixbench/secrets/volcano-ca.key)
[ ${#leaf} -gt 30 ] && [ ${#authority} -gt 30 ] || { echo "no keys"; exit 1; }
`
	// grep reads the texts from its standard input, so they are in no argument.
	search := func(command, want string) {
		c.Helper()
		c.CheckOutput("cp-1", lines+command, want)
	}
	search(`printf '%s\n' "$leaf" "$authority" | grep -rlFs -f - /etc /var/lib/nixbench /var/lib/kubelet/pods /run/nixbench-volcano /nix/store /var/log | sort | tr '\n' ' '`, "/var/lib/nixbench/secrets/volcano-ca.key")
	search(`journalctl --no-pager -q > /run/journal; printf '%s\n' "$leaf" "$authority" | grep -cF -f - /run/journal; grep -c 'secret/volcano-admission-secret serverside-applied' /run/journal; rm /run/journal`, "0\n1")
	search(`cat /proc/[0-9]*/cmdline > /run/arguments 2> /dev/null; printf '%s\n' "$leaf" "$authority" | grep -caF -f - /run/arguments; grep -qa kube-apiserver /run/arguments && echo found; rm /run/arguments`, "0\nfound")
}
