package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two consecutive patch releases that the lab can build.
const (
	oldVersion = "1.34.3"
	newVersion = "1.34.4"
)

// versionSettings returns a hive's settings for a version. A version that is not in the machines'
// image can be evaluated, but not run.
func versionSettings(version string) string {
	return fmt.Sprintf(`package = pkgs.fromHost "kubernetes" (map (p: "/usr/share/nixbench-kube/bin/v%[1]s/${p}")
      [ "kubelet" "kubeadm" "kubectl" ]) // { version = "%[1]s"; }; `, version)
}

var allNodes = []string{"cp-1", "cp-2", "w-1", "w-2"}

// A cluster is upgraded while its services answer requests. Unsupported versions are refused, an
// upgrade that fails is rolled back, and the next run continues one that was killed.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t, "--kubernetes-version", "v"+oldVersion, "--kubernetes-version", "v"+newVersion)
	const settings = "settings.kubelet.maxPods = 90; "
	// The upgrade also adds an audit log. kubeadm upgrades cp-2 with the settings of cp-1, before cp-2 has
	// switched to its new system.
	g.writeHive(2, 2, versionSettings(oldVersion)+"audit.enable = false; ")
	g.run("apply")
	g.checkKubeletVersions(oldVersion, allNodes...)
	g.startRequests()
	g.checkRequests("before any change")

	g.checkUpgradeRefused("1.36.0", "from one minor release to the next only", "release 1.35 and apply; then to the next minor release")
	g.checkUpgradeRefused("1.34.2", "cannot go back", "1.34.3 or later")

	g.writeHive(2, 2, versionSettings(newVersion)+settings)
	g.checkUpgradePlanned()
	g.checkFailedUpgrade()
	g.checkRequests("an upgrade that failed")

	// The first run is killed while it upgrades cp-1, the second one when it has drained cp-2, and the
	// third one completes the upgrade.
	began := time.Now()
	g.killApplyWhen("cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "upgrade")
	t.Logf("killed after %.1f s", time.Since(began).Seconds())
	g.killApplyDuringDrain("cp-2")
	t.Logf("killed again after %.1f s", time.Since(began).Seconds())
	if got := g.apiVersion("cp-1"); got != newVersion {
		t.Errorf("the API of cp-1 is %s when cp-2 is drained", got)
	}
	code, out, diag := g.runUnlogged("apply", "--json")
	if code != 0 {
		t.Fatalf("the third run: exit code %d\n%s%s", code, out, diag)
	}
	t.Logf("upgraded in %.1f s", time.Since(began).Seconds())
	g.checkRequests("an upgrade")
	second := "cp-2"
	if !strings.Contains(out+diag, `"event":"node-start","phase":"activate","node":"cp-2"`) { // the node had completed its upgrade after the second run was killed
		second = "=cp-2"
	}
	g.checkOrder(out+diag, second, "w-1", "w-2")
	g.checkUpgraded()
	g.checkUpgradeOrder()

	touched := g.nodeStates(allNodes...)
	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 4 || g.nodeStates(allNodes...) != touched {
		t.Errorf("a second apply is not a no-op: exit code %d\n%s", code, diag)
	}

	// A worker can be rolled back to the older version, a control plane cannot.
	g.run("rollback", "--on", "w-1", "--yes")
	g.waitForOutput(time.Minute, "cp-1", admin+"get node w-1 -o jsonpath={.status.nodeInfo.kubeletVersion}", "v"+oldVersion)
	g.run("check", "--deep")
	g.checkRequests("the rollback of a worker")
	if code, _, diag := g.try("rollback", "--on", "cp-2", "--yes"); code != 8 || !strings.Contains(diag, "cannot go back to "+oldVersion) {
		t.Errorf("the rollback of a control plane: exit code %d\n%s", code, diag)
	}
	g.run("apply")
	g.checkUpgraded()
	g.checkRequests("the upgrade of the worker after its rollback")
}

// The API of a single control plane is unavailable during its upgrade. If the run is killed then, the
// next run waits for the API, and upgrades the worker last.
func TestUpgradeOneControlPlane(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t, "--kubernetes-version", "v"+oldVersion, "--kubernetes-version", "v"+newVersion)
	g.writeHive(1, 1, versionSettings(oldVersion))
	g.run("apply")
	g.writeHive(1, 1, versionSettings(newVersion))
	g.killApplyWhen("cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "upgrade", "! curl -sk --max-time 2 https://127.0.0.1:6443/readyz")
	code, out, diag := g.runUnlogged("apply", "--json")
	if code != 0 {
		t.Fatalf("the next run: exit code %d\n%s%s", code, out, diag)
	}
	g.checkOrder(out+diag, "=cp-1", "w-1")
	g.checkUncordoned("cp-1", "w-1")
	g.checkKubeletVersions(newVersion, "cp-1", "w-1")
	if got := g.apiVersion("cp-1"); got != newVersion {
		t.Errorf("the API is %s", got)
	}
}

// When a new system was installed by `apply boot`, its unit upgrades the control plane at boot. The
// unit of an older system, activated without nixbench's checks, does not downgrade it.
func TestUpgradeAtBoot(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t, "--kubernetes-version", "v"+oldVersion, "--kubernetes-version", "v"+newVersion)
	g.writeHive(1, 0, versionSettings(oldVersion))
	g.run("apply")
	g.writeHive(1, 0, versionSettings(newVersion))
	g.run("apply", "boot")
	if got := g.apiVersion("cp-1"); got != oldVersion {
		t.Errorf("before the boot the API is %s", got)
	}
	g.run("reboot", "--yes")
	g.waitForOutput(5*time.Minute, "cp-1", "cat /var/lib/nixbench/kubernetes/version; jq -r .phase /run/nixbench/kubernetes.json", newVersion+"\nready")
	if got := g.apiVersion("cp-1"); got != newVersion {
		t.Errorf("after the boot the API is %s", got)
	}
	g.run("check")

	g.runOn("cp-1", "NIXOS_NO_CHECK=1 /nix/var/nix/profiles/system-1-link/bin/switch-to-configuration test")
	g.waitForOutput(time.Minute, "cp-1", admin+"get node cp-1 -o jsonpath={.status.nodeInfo.kubeletVersion}", "v"+oldVersion)
	g.waitForOutput(time.Minute, "cp-1", `jq -r '"\(.phase): \(.message)"' /run/nixbench/kubernetes.json`,
		"ready: the control plane stays at "+newVersion+", which is newer than this system's "+oldVersion)
	if got := g.apiVersion("cp-1"); got != newVersion {
		t.Errorf("an older system has downgraded the API to %s", got)
	}
	g.run("apply")
	g.checkKubeletVersions(newVersion, "cp-1")
}

// apiVersion returns the version of the API server on this control plane.
func (g *guestCluster) apiVersion(node string) string {
	g.Helper()
	return g.runOn(node, admin+"version -o json | jq -r '.serverVersion.gitVersion | ltrimstr(\"v\")'")
}

func (g *guestCluster) checkKubeletVersions(version string, nodes ...string) {
	g.Helper()
	var want []string
	for _, node := range nodes {
		want = append(want, node+"=v"+version)
	}
	if got := g.runOn("cp-1", admin+`get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.nodeInfo.kubeletVersion} {end}'`); got != strings.Join(want, " ") {
		g.Errorf("kubelets: %s, want %s", got, want)
	}
}

// checkUpgradeRefused checks that apply and plan refuse a version, and that apply does so before it drains or activates a node.
func (g *guestCluster) checkUpgradeRefused(version string, want ...string) {
	g.Helper()
	touched := g.nodeStates(allNodes...)
	marks := g.runOn("cp-1", admin+"get nodes -o jsonpath='{.items[*].metadata.annotations}{.items[*].spec}'")
	g.writeHive(2, 2, versionSettings(version))
	code, out, diag := g.runUnlogged("apply", "--json")
	if code != 8 {
		g.Errorf("to %s: exit code %d, want 8", version, code)
	}
	for _, text := range append(want, oldVersion, version, "nixbench.kubernetes.version") {
		if !strings.Contains(out+diag, text) {
			g.Errorf("to %s: %q is not in the output:\n%s", version, text, diag)
		}
	}
	for line := range strings.Lines(out + diag) {
		var e struct{ Event, Phase, Node string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "node-start" && slices.Contains([]string{"drain", "activate"}, e.Phase) {
			g.Errorf("to %s: the run began %s of %s", version, e.Phase, e.Node)
		}
	}
	if g.nodeStates(allNodes...) != touched || g.runOn("cp-1", admin+"get nodes -o jsonpath='{.items[*].metadata.annotations}{.items[*].spec}'") != marks {
		g.Errorf("to %s: the refused upgrade has changed nodes", version)
	}
	if code, _, diag := g.try("plan"); code != 8 || !strings.Contains(diag, want[0]) {
		g.Errorf("to %s: plan: exit code %d\n%s", version, code, diag)
	}
}

// checkUpgradePlanned checks that plan shows the old and the new version for every node.
func (g *guestCluster) checkUpgradePlanned() {
	g.Helper()
	if out := g.run("plan"); strings.Count(out, oldVersion+" → "+newVersion) != len(allNodes) {
		g.Errorf("plan does not show the upgrade of every node:\n%s", out)
	}
}

// checkFailedUpgrade deletes an image of the new version, and checks that the upgrade fails and
// that all nodes run the old version afterwards. It then imports the image again.
func (g *guestCluster) checkFailedUpgrade() {
	g.Helper()
	const image = "registry.k8s.io/kube-apiserver:v" + newVersion
	touched := g.nodeStates(allNodes...)
	g.runOn("cp-1", "ctr -n k8s.io images tag "+image+" localhost/kept:1 && ctr -n k8s.io images rm "+image)
	code, _, diag := g.try("apply")
	if code != 8 || !strings.Contains(diag, "could not go from Kubernetes "+oldVersion+" to "+newVersion) || !strings.Contains(diag, image) {
		g.Errorf("an upgrade without an image: exit code %d\n%s", code, diag)
	}
	g.checkUncordoned(allNodes...)
	g.checkKubeletVersions(oldVersion, allNodes...)
	for _, node := range []string{"cp-1", "cp-2"} {
		if got := g.apiVersion(node); got != oldVersion {
			g.Errorf("after an upgrade that failed the API of %s is %s", node, got)
		}
	}
	if now := g.nodeStates(allNodes...); now != touched {
		g.Errorf("an upgrade that failed has changed nodes: from\n%s\nto\n%s", touched, now)
	}
	g.waitForOutput(time.Minute, "cp-1", "jq -r .phase /var/lib/nixbench/kubernetes.json", "ready")
	g.runOn("cp-1", "ctr -n k8s.io images tag localhost/kept:1 "+image+" && ctr -n k8s.io images rm localhost/kept:1")
}

// checkUpgraded checks that kubelets, pods, API servers and the cluster's configuration have the new
// version, and that the cluster's kubelet configuration has the hive's settings.
func (g *guestCluster) checkUpgraded() {
	g.Helper()
	g.checkUncordoned(allNodes...)
	g.checkKubeletVersions(newVersion, allNodes...)
	images := strings.Fields(g.runOn("cp-1", "kubeadm config images list --kubernetes-version v"+newVersion+" | grep -v /pause: | sort"))
	running := strings.Fields(g.runOn("cp-1", admin+`-n kube-system get pods -o jsonpath='{range .items[*]}{.spec.containers[*].image}{"\n"}{end}' | sort -u`))
	if !slices.Equal(running, images) {
		g.Errorf("pods run %q, want %q", running, images)
	}
	for _, node := range []string{"cp-1", "cp-2"} {
		if got := g.apiVersion(node); got != newVersion {
			g.Errorf("the API of %s is %s", node, got)
		}
	}
	if got := g.runOn("cp-1", admin+`-n kube-system get configmap kubeadm-config -o jsonpath={.data.ClusterConfiguration} | grep ^kubernetesVersion`); got != "kubernetesVersion: v"+newVersion {
		g.Errorf("the cluster's configuration has %s", got)
	}
	if got := g.runOn("cp-1", admin+`-n kube-system get configmap kubelet-config -o jsonpath={.data.kubelet} | grep ^maxPods`); got != "maxPods: 90" {
		g.Errorf("the cluster's configuration of kubelets has %s", got)
	}
}

// checkUpgradeOrder checks that kubeadm has upgraded each control plane once, that its kubelet was started only after
// that, and that the nodes were changed one after the other.
func (g *guestCluster) checkUpgradeOrder() {
	g.Helper()
	success := map[string]string{
		"cp-1": "[upgrade] SUCCESS! A control plane node of your cluster was upgraded",
		"cp-2": "[upgrade/control-plane] The control plane instance for this node was successfully upgraded!",
	}
	var times []string
	for _, node := range allNodes {
		if text := success[node]; text != "" {
			upgrades := strings.Fields(g.runOn(node, "journalctl -o short-unix --no-pager -u nixbench-activate | grep -F '"+text+"' | cut -d. -f1"))
			if len(upgrades) != 1 {
				g.Errorf("kubeadm upgraded %s %d times, want once", node, len(upgrades))
				continue
			}
			times = append(times, upgrades[0]+".upgrade-of-"+node)
		}
		times = append(times, g.runOn(node, `date -u +%s.kubelet-of-`+node+` -d "$(systemctl show --timestamp=utc -p ActiveEnterTimestamp --value kubelet)"`))
	}
	g.Logf("upgrades and starts of kubelets, whose times must increase: %s", strings.Join(times, " "))
	seconds := func(text string) string { before, _, _ := strings.Cut(text, "."); return before }
	if !slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(seconds(a), seconds(b)) }) {
		g.Errorf("the times do not increase: %q", times)
	}
}
