package kubernetes

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A cluster with CRI-O instead of containerd and with flannel as its pod network, whose images all
// come from archives.
func TestCRIOAndFlannel(t *testing.T) {
	t.Parallel()
	const crio, flannel = "cri-o-v1.34.0", "flannel-v0.28.4"
	g := newGuestCluster(t, "--kubernetes-part", crio, "--kubernetes-part", flannel)
	settings := fmt.Sprintf(`
      containerRuntime.name = "cri-o";
      cni.name = "flannel";
      images = [ %s ];`, g.imageArchives("v1.34.4", flannel))
	g.writeHive(1, 2, settings)
	began := time.Now()
	g.run("apply")
	t.Logf("from an empty hypervisor to 1 + 2 nodes Ready: %.1f s", time.Since(began).Seconds())
	g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	g.run("check", "--deep")

	if got := g.runOn("cp-1", admin+"get nodes -o jsonpath='{.items[*].status.nodeInfo.containerRuntimeVersion}'"); got != "cri-o://1.34.0 cri-o://1.34.0 cri-o://1.34.0" {
		t.Errorf("the nodes' container runtimes are %q", got)
	}
	if got := g.runOn("w-1", "ls /etc/cni/net.d"); got != "05-flannel.conflist" {
		t.Errorf("/etc/cni/net.d has %q, want only flannel's configuration", got)
	}
	// No pod has an address of CRI-O's default network.
	pods := netip.MustParsePrefix("10.244.0.0/16")
	addresses := strings.Fields(g.runOn("cp-1", admin+"-n kube-system get pods -o json | jq -r '.items[] | select(.spec.hostNetwork | not) | .status.podIP'"))
	if len(addresses) == 0 {
		t.Error("no pod has an address of its own")
	}
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err != nil || !pods.Contains(ip) {
			t.Errorf("a pod has the address %s (%v)", text, err)
		}
	}

	// Images that no registry has are pinned, and loaded again after they were deleted.
	const image = "registry.k8s.io/kube-scheduler:v1.34.4"
	if got := g.runOn("w-1", "journalctl -u crio -o cat | grep -c 'Set config pinned_images to.*"+image+"'"); got != "1" {
		t.Errorf("CRI-O's journal has %s settings that pin %s, want 1", got, image)
	}
	g.runOn("w-1", "skopeo delete containers-storage:"+image+" && systemctl restart nixbench-kubernetes")
	g.waitForOutput(30*time.Second, "w-1", "skopeo inspect --raw containers-storage:"+image+" >/dev/null && jq -r .phase /run/nixbench/kubernetes.json", "ready")

	// With another backend flannel restarts, and pods reach each other through it.
	g.checkRoute("dev flannel.1")
	g.writeHive(1, 2, settings+`cni.flannel.settings.Backend.Type = "host-gw";`)
	g.run("apply")
	g.runOn("cp-1", admin+"-n kube-flannel rollout status daemonset/kube-flannel-ds --timeout=50s")
	g.checkRoute("dev eth0")
	g.run("check", "--deep")
}

// checkRoute checks that the route from w-1 to the pods of w-2 has this device.
func (g *guestCluster) checkRoute(want string) {
	g.Helper()
	subnet := g.runOn("cp-1", admin+"get node w-2 -o jsonpath='{.spec.podCIDR}'")
	if got := g.runOn("w-1", "ip route show "+subnet); !strings.Contains(got, want) {
		g.Errorf("the route from w-1 to the pods of w-2 is %q, want %s", got, want)
	}
}

// imageArchives lists the images of these parts, as Nix strings with their paths on nodes.
func (g *guestCluster) imageArchives(parts ...string) string {
	g.Helper()
	var list strings.Builder
	for _, part := range parts {
		out, err := exec.Command("../kube/build", part).Output()
		if err != nil {
			g.Fatal(err)
		}
		root := filepath.Join(strings.TrimSpace(string(out)), "root")
		files, _ := filepath.Glob(filepath.Join(root, "usr/share/nixbench-kube/images/*.tar"))
		if len(files) == 0 {
			g.Fatalf("%s has no images", root)
		}
		for _, file := range files {
			fmt.Fprintf(&list, "%q ", strings.TrimPrefix(file, root))
		}
	}
	return list.String()
}
