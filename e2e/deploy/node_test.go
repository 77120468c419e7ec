package deploy

import (
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A machine for Kubernetes behaves like NixOS: the containerd unit is the system's, all programs of
// the packages that a node needs exist, and all images are imported before units start that are
// ordered after containerd.
func TestKubernetesNode(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1, "--kubernetes"))
	s.writeHive(`m1 = { pkgs, ... }: {
		virtualisation.containerd.enable = true;
		virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
		environment.systemPackages = with pkgs; [
			kubernetes kubectl etcd containerd runc cni-plugins conntrack-tools ethtool socat iproute2
			iptables ebtables nftables kmod jq
		];
		systemd.services.after-containerd = (once "ctr -n k8s.io images list -q > /run/images") // {
			after = [ "containerd.service" ]; path = [ pkgs.containerd ];
		};
	};`)
	s.run(0, "apply")
	check := func(when string) {
		t.Helper()
		if got := s.runOn("m1", "readlink -f /etc/systemd/system/containerd.service | cut -d/ -f-3; systemctl is-active containerd after-containerd"); got != "/nix/store\nactive\nactive" {
			t.Errorf("%s: containerd is %q", when, got)
		}
		if got := s.runOn("m1", `for i in $(kubeadm config images list --kubernetes-version $(kubeadm version -o short)) localhost/probe:1; do grep -qxF $i /run/images || echo $i; done`); got != "" {
			t.Errorf("%s: these images are missing: %s", when, got)
		}
		if got := s.runOn("m1", "find -L /run/current-system/sw/bin -type l"); got != "" {
			t.Errorf("%s: these programs are missing: %s", when, got)
		}
	}
	check("after apply")
	s.l.Reboot(t, "m1")
	check("after a reboot")
}
