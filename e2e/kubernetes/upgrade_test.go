package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two releases that the lab can build, one step from each other.
const (
	before = "1.34.3"
	after  = "1.34.4"
)

// release is a hive's settings for a version. What machines do not have cannot be run, but
// evaluated.
func release(version string) string {
	return fmt.Sprintf(`package = pkgs.fromHost "kubernetes" (map (p: "/usr/share/nixbench-kube/bin/v%[1]s/${p}")
      [ "kubelet" "kubeadm" "kubectl" ]) // { version = "%[1]s"; }; `, version)
}

var everyone = []string{"cp-1", "cp-2", "w-1", "w-2"}

// A cluster goes to the next version while it is used. What would break it is refused, what
// fails is taken back, what is cut off is finished.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	g := newGround(t, "--kubernetes-version", "v"+before, "--kubernetes-version", "v"+after)
	const settings = "settings.kubelet.maxPods = 90; "
	g.hive(2, 2, release(before))
	g.run("apply")
	g.kubelets(before, everyone...)
	g.visitors()
	g.visited("nothing")

	g.refused("1.36.0", "from one minor release to the next only", "release 1.35 and apply; then to 1.36.0")
	g.refused("1.34.2", "cannot go back", "1.34.3 or later")

	g.hive(2, 2, release(after)+settings)
	g.planned()
	g.withoutImage()
	g.visited("an upgrade that failed")

	// A run is killed while the first control plane is upgraded, the next one when that is
	// through, and the third does the rest.
	began := time.Now()
	g.killWhen("cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "upgrade")
	t.Logf("killed after %.1f s", time.Since(began).Seconds())
	g.killDrained("cp-2")
	t.Logf("killed again after %.1f s", time.Since(began).Seconds())
	if got := g.api("cp-1"); got != after {
		t.Errorf("the API of cp-1 is %s when cp-2 is drained", got)
	}
	code, out, diag := g.quietly("apply", "--json")
	if code != 0 {
		t.Fatalf("the third run: exit code %d\n%s%s", code, out, diag)
	}
	t.Logf("upgraded in %.1f s", time.Since(began).Seconds())
	g.visited("an upgrade")
	second := "cp-2"
	if !strings.Contains(out+diag, `"event":"node-start","phase":"activate","node":"cp-2"`) { // it went on by itself when the run was killed
		second = "=cp-2"
	}
	g.order(out+diag, second, "w-1", "w-2")
	g.upgraded()
	g.inOrder()

	touched := g.untouched(everyone...)
	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 4 || g.untouched(everyone...) != touched {
		t.Errorf("a second apply is not a no-op: exit code %d\n%s", code, diag)
	}

	// A worker may be behind, a control plane may not.
	g.run("rollback", "--on", "w-1", "--yes")
	g.wait(time.Minute, "cp-1", admin+"get node w-1 -o jsonpath={.status.nodeInfo.kubeletVersion}", "v"+before)
	g.run("check", "--deep")
	g.visited("a worker that went back")
	if code, _, diag := g.try("rollback", "--on", "cp-2", "--yes"); code != 8 || !strings.Contains(diag, "cannot go back to "+before) {
		t.Errorf("a control plane that goes back: exit code %d\n%s", code, diag)
	}
	g.run("apply")
	g.upgraded()
	g.visited("all again")
}

// With one control plane nobody answers for a while. A run that begins then, because the one
// before was killed, waits, and does not take the workers first.
func TestUpgradeOfOne(t *testing.T) {
	t.Parallel()
	g := newGround(t, "--kubernetes-version", "v"+before, "--kubernetes-version", "v"+after)
	g.hive(1, 1, release(before))
	g.run("apply")
	g.hive(1, 1, release(after))
	g.killWhen("cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "upgrade", "! curl -sk --max-time 2 https://127.0.0.1:6443/readyz")
	code, out, diag := g.quietly("apply", "--json")
	if code != 0 {
		t.Fatalf("the next run: exit code %d\n%s%s", code, out, diag)
	}
	g.order(out+diag, "=cp-1", "w-1")
	g.atWork("cp-1", "w-1")
	g.kubelets(after, "cp-1", "w-1")
	if got := g.api("cp-1"); got != after {
		t.Errorf("the API is %s", got)
	}
}

// Booted, the new system's own unit upgrades the control plane. An older system that gets past
// all checks, as one does that is gone back to, leaves it as it is.
func TestUpgradeAtBoot(t *testing.T) {
	t.Parallel()
	g := newGround(t, "--kubernetes-version", "v"+before, "--kubernetes-version", "v"+after)
	g.hive(1, 0, release(before))
	g.run("apply")
	g.hive(1, 0, release(after))
	g.run("apply", "boot")
	if got := g.api("cp-1"); got != before {
		t.Errorf("before the boot the API is %s", got)
	}
	g.run("reboot", "--yes")
	g.wait(5*time.Minute, "cp-1", "cat /var/lib/nixbench/kubernetes/version; jq -r .phase /run/nixbench/kubernetes.json", after+"\nready")
	if got := g.api("cp-1"); got != after {
		t.Errorf("after the boot the API is %s", got)
	}
	g.run("check")

	g.on("cp-1", "NIXOS_NO_CHECK=1 /nix/var/nix/profiles/system-1-link/bin/switch-to-configuration test")
	g.wait(time.Minute, "cp-1", admin+"get node cp-1 -o jsonpath={.status.nodeInfo.kubeletVersion}", "v"+before)
	g.wait(time.Minute, "cp-1", `jq -r '"\(.phase): \(.message)"' /run/nixbench/kubernetes.json`,
		"ready: the control plane stays at "+after+", which is newer than this system's "+before)
	if got := g.api("cp-1"); got != after {
		t.Errorf("an older system has taken the API back to %s", got)
	}
	g.run("apply")
	g.kubelets(after, "cp-1")
}

// api is the version of a control plane's own API server.
func (g *ground) api(node string) string {
	g.Helper()
	return g.on(node, admin+"version -o json | jq -r '.serverVersion.gitVersion | ltrimstr(\"v\")'")
}

func (g *ground) kubelets(version string, nodes ...string) {
	g.Helper()
	var want []string
	for _, node := range nodes {
		want = append(want, node+"=v"+version)
	}
	if got := g.on("cp-1", admin+`get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.nodeInfo.kubeletVersion} {end}'`); got != strings.Join(want, " ") {
		g.Errorf("kubelets: %s, want %s", got, want)
	}
}

// refused wants a version refused before anything is done anywhere.
func (g *ground) refused(version string, want ...string) {
	g.Helper()
	touched := g.untouched(everyone...)
	marks := g.on("cp-1", admin+"get nodes -o jsonpath='{.items[*].metadata.annotations}{.items[*].spec}'")
	g.hive(2, 2, release(version))
	code, out, diag := g.quietly("apply", "--json")
	if code != 8 {
		g.Errorf("to %s: exit code %d, want 8", version, code)
	}
	for _, text := range append(want, before, version, "nixbench.kubernetes.version") {
		if !strings.Contains(out+diag, text) {
			g.Errorf("to %s: %q is not in what it says:\n%s", version, text, diag)
		}
	}
	for line := range strings.Lines(out + diag) {
		var e struct{ Event, Phase, Node string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "node-start" && slices.Contains([]string{"copy", "drain", "activate"}, e.Phase) {
			g.Errorf("to %s: it went as far as %s of %s", version, e.Phase, e.Node)
		}
	}
	if g.untouched(everyone...) != touched || g.on("cp-1", admin+"get nodes -o jsonpath='{.items[*].metadata.annotations}{.items[*].spec}'") != marks {
		g.Errorf("to %s: what was refused has changed nodes", version)
	}
	if code, _, diag := g.try("plan"); code != 8 || !strings.Contains(diag, want[0]) {
		g.Errorf("to %s: plan: exit code %d\n%s", version, code, diag)
	}
}

// planned wants plan to say that apply would be an upgrade.
func (g *ground) planned() {
	g.Helper()
	if out := g.run("plan"); strings.Count(out, before+" → "+after) != len(everyone) {
		g.Errorf("plan does not say that every node is upgraded:\n%s", out)
	}
}

// withoutImage wants the old control plane back at work where the new one cannot start.
func (g *ground) withoutImage() {
	g.Helper()
	const image = "registry.k8s.io/kube-apiserver:v" + after
	touched := g.untouched(everyone...)
	g.on("cp-1", "ctr -n k8s.io images rm "+image)
	code, _, diag := g.try("apply")
	if code != 8 || !strings.Contains(diag, "could not go from Kubernetes "+before+" to "+after) || !strings.Contains(diag, image) {
		g.Errorf("an upgrade without an image: exit code %d\n%s", code, diag)
	}
	g.atWork(everyone...)
	g.kubelets(before, everyone...)
	for _, node := range []string{"cp-1", "cp-2"} {
		if got := g.api(node); got != before {
			g.Errorf("after an upgrade that failed the API of %s is %s", node, got)
		}
	}
	if now := g.untouched(everyone...); now != touched {
		g.Errorf("an upgrade that failed has left something: from\n%s\nto\n%s", touched, now)
	}
	g.wait(time.Minute, "cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "ready")
	g.on("cp-1", "ctr -n k8s.io images import --local --no-unpack /usr/share/nixbench-kube/images/kube-apiserver-v"+after+".tar")
}

// upgraded wants all that has a version to have the new one, and the cluster's own record of
// its settings to be the hive's.
func (g *ground) upgraded() {
	g.Helper()
	g.atWork(everyone...)
	g.kubelets(after, everyone...)
	images := strings.Fields(g.on("cp-1", "kubeadm config images list --kubernetes-version v"+after+" | grep -v /pause: | sort"))
	running := strings.Fields(g.on("cp-1", admin+`-n kube-system get pods -o jsonpath='{range .items[*]}{.spec.containers[*].image}{"\n"}{end}' | sort -u`))
	if !slices.Equal(running, images) {
		g.Errorf("pods run %q, want %q", running, images)
	}
	for _, node := range []string{"cp-1", "cp-2"} {
		if got := g.api(node); got != after {
			g.Errorf("the API of %s is %s", node, got)
		}
	}
	if got := g.on("cp-1", admin+`-n kube-system get configmap kubeadm-config -o jsonpath={.data.ClusterConfiguration} | grep ^kubernetesVersion`); got != "kubernetesVersion: v"+after {
		g.Errorf("the cluster's configuration has %s", got)
	}
	if got := g.on("cp-1", admin+`-n kube-system get configmap kubelet-config -o jsonpath={.data.kubelet} | grep ^maxPods`); got != "maxPods: 90" {
		g.Errorf("the cluster's configuration of kubelets has %s", got)
	}
}

// inOrder wants the API of cp-2 before its kubelet, by kubeadm's two commands, and the workers
// last. On cp-1 a run was killed, so its API may start once more after the kubelet.
func (g *ground) inOrder() {
	g.Helper()
	var times []string
	for _, node := range everyone {
		if node == "cp-2" {
			times = append(times, g.on(node, `date -u +%s.API-of-`+node+` -d "$(`+admin+`-n kube-system get pod kube-apiserver-`+node+` -o jsonpath={.status.containerStatuses[0].state.running.startedAt})"`))
		}
		times = append(times, g.on(node, `date -u +%s.kubelet-of-`+node+` -d "$(systemctl show --timestamp=utc -p ActiveEnterTimestamp --value kubelet)"`))
	}
	g.Logf("in the order that is wanted: %s", strings.Join(times, " "))
	if !slices.IsSorted(times) {
		g.Errorf("not in order: %q", times)
	}
	for node, want := range map[string]string{
		"cp-1": "[upgrade] SUCCESS! A control plane node of your cluster was upgraded",
		"cp-2": "[upgrade/control-plane] The control plane instance for this node was successfully upgraded!",
	} {
		if got := g.on(node, "journalctl -o cat --no-pager -u nixbench-switch | grep -F '"+want+"' | wc -l"); got != "1" {
			g.Errorf("%s says %s times: %s", node, got, want)
		}
	}
}
