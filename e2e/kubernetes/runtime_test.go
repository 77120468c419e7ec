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

// The other container runtime and another pod network, with images from archives alone.
func TestCRIOAndFlannel(t *testing.T) {
	t.Parallel()
	const crio, flannel = "cri-o-v1.34.0", "flannel-v0.28.4"
	g := newGround(t, "--kubernetes-part", crio, "--kubernetes-part", flannel)
	settings := fmt.Sprintf(`
      containerRuntime.name = "cri-o";
      cni.name = "flannel";
      images = [ %s ];`, g.archives("v1.34.4", flannel))
	g.hive(1, 2, settings)
	began := time.Now()
	g.run("apply")
	t.Logf("from nothing to 1 + 2 nodes Ready: %.1f s", time.Since(began).Seconds())
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	g.run("check", "--deep")

	if got := g.on("cp-1", admin+"get nodes -o jsonpath='{.items[*].status.nodeInfo.containerRuntimeVersion}'"); got != "cri-o://1.34.0 cri-o://1.34.0 cri-o://1.34.0" {
		t.Errorf("containers are run by %q", got)
	}
	if got := g.on("w-1", "ls /etc/cni/net.d"); got != "05-flannel.conflist" {
		t.Errorf("there are other networks than flannel's: %q", got)
	}
	// None from the network that CRI-O would have by itself.
	pods := netip.MustParsePrefix("10.244.0.0/16")
	addresses := strings.Fields(g.on("cp-1", admin+"-n kube-system get pods -o json | jq -r '.items[] | select(.spec.hostNetwork | not) | .status.podIP'"))
	if len(addresses) == 0 {
		t.Error("no pod has an address of its own")
	}
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err != nil || !pods.Contains(ip) {
			t.Errorf("a pod has the address %s (%v)", text, err)
		}
	}

	// Images that no registry has are pinned, and loaded again when they are lost.
	const image = "registry.k8s.io/kube-scheduler:v1.34.4"
	if got := g.on("w-1", "journalctl -u crio -o cat | grep -c 'Set config pinned_images to.*"+image+"'"); got != "1" {
		t.Errorf("CRI-O was told %s times to pin %s, want once", got, image)
	}
	g.on("w-1", "skopeo delete containers-storage:"+image+" && systemctl restart nixbench-kubernetes")
	g.wait(30*time.Second, "w-1", "skopeo inspect --raw containers-storage:"+image+" >/dev/null && jq -r .phase /run/nixbench/kubernetes.json", "ready")

	// Another backend: flannel starts anew, and all pods stay where they are.
	g.route("dev flannel.1")
	g.hive(1, 2, settings+`cni.flannel.settings.Backend.Type = "host-gw";`)
	g.run("apply")
	g.on("cp-1", admin+"-n kube-flannel rollout status daemonset/kube-flannel-ds --timeout=50s")
	g.route("dev eth0")
	g.run("check", "--deep")
}

// route wants w-1 to reach the pods of w-2 by this device.
func (g *ground) route(want string) {
	g.Helper()
	subnet := g.on("cp-1", admin+"get node w-2 -o jsonpath='{.spec.podCIDR}'")
	if got := g.on("w-1", "ip route show "+subnet); !strings.Contains(got, want) {
		g.Errorf("w-1 reaches the pods of w-2 by %q, want %s", got, want)
	}
}

// archives lists the images of these parts, as Nix strings with their paths on nodes.
func (g *ground) archives(parts ...string) string {
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
