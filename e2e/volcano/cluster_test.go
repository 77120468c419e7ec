package volcano

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/guests"
)

// cluster is a hive with the roles cp and w, whose machines nixbench creates as containers of the lab's hypervisor.
type cluster struct{ *guests.Cluster }

func newCluster(t *testing.T) *cluster {
	if os.Getenv("NIXBENCH_E2E") != "" && os.Getenv("NIXBENCH_VOLCANO_SRC") == "" {
		t.Skip("needs NIXBENCH_VOLCANO_SRC, the source of a release of Volcano, which is in no package registry; see e2e/kube/README.md")
	}
	return &cluster{guests.New(t, program, 8*time.Minute, "--kubernetes", "--size", "6G", "--kubernetes-part", "volcano")}
}

// writeHive writes hive.nix with a control plane, two workers, and settings of nixbench.kubernetes for all nodes.
func (c *cluster) writeHive(settings string) {
	c.Helper()
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init-kubernetes"; vcpus = 2; memory = "3G";
    xml = "<domain><features><capabilities policy='allow'/></features><devices><hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev></devices></domain>";`, c.Image)
	c.WriteHiveFile(fmt.Sprintf(`{
  meta.nixpkgs = import %[1]s { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "%[2]s"; poolPath = "%[3]s"; };
  cluster.endpoint.role = "cp";
  defaults = {
    imports = [ %[4]s ];
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    networking.nameservers = [ "192.168.222.1" ]; # kubelets pass it on to pods
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
    nixbench.kubernetes = {
      settings = {
        kubelet = {
          failSwapOn = false;
          failCgroupV1 = false;
          imageGCHighThresholdPercent = 100;
          evictionHard = { "memory.available" = "100Mi"; "nodefs.available" = "1%%"; "nodefs.inodesFree" = "1%%"; "imagefs.available" = "1%%"; };
        };
        proxy.conntrack = { maxPerCore = 0; min = 0; };
      };
      %[5]s
    };
  };
  roles.cp = { %[6]s modules = [ %[4]s/control-plane.nix ]; };
  roles.w = { count = 2; %[6]s modules = [ %[4]s/worker.nix ]; };
}
`, nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, c.Path("../../modules/kubernetes"), settings, machine))
}

// admin begins a command of the administrator.
const admin = "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://127.0.0.1:6443 --tls-server-name kubernetes --request-timeout 10s "

// createGang creates a Job of Volcano with that many pods, which need a place each. Its pods start when so many as available can start.
func (c *cluster) createGang(name string, pods, available int) error {
	c.Helper()
	out, err := c.TryOn("cp-1", fmt.Sprintf(admin+`create -f - <<'END'
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: { name: %[1]s, namespace: default }
spec:
  schedulerName: volcano
  minAvailable: %[3]d
  tasks:
    - name: main
      replicas: %[2]d
      template:
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 1
          containers:
            - { name: main, image: "localhost/probe:1", command: [ "/probe", "serve" ], resources: { limits: { example.org/place: 1 } } }
END`, name, pods, available))
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return nil
}

// nodesOf is a command that prints the nodes of the pods of a Job, and none for pods without a node.
func nodesOf(job string) string {
	return admin + `get pods -l volcano.sh/job-name=` + job + ` -o json | jq -r '[ .items[] | .spec.nodeName // "none" ] | sort | unique | join(" ")'`
}
