package handover

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/e2e/guests"
)

// cluster is a hive with the nodes head-1 and node-1, which run Kubernetes, SLURM, or no scheduler. nixbench creates
// their machines as containers of the lab's hypervisor.
type cluster struct{ *guests.Cluster }

func newCluster(t *testing.T) *cluster {
	return &cluster{guests.New(t, program, 8*time.Minute, "--kubernetes", "--slurm", "--size", "6G")}
}

// hive has the placeholders NIXPKGS, URI, POOL, MODULES, LAB, IMAGE and SCHEDULER. The cleanup of each scheduler waits
// while /run/handover-waits exists, and fails if /run/handover-fails exists. The systems with Kubernetes have a
// specialisation with SLURM.
const hive = `let
  container = import LAB/kubernetes-node.nix;
  scheduler = "SCHEDULER";
  schedulers = {
    none.head = MODULES/handover;
    none.node = MODULES/handover;
    kubernetes.head = MODULES/kubernetes/control-plane.nix;
    kubernetes.node = MODULES/kubernetes/worker.nix;
    slurm.head = MODULES/slurm/controller.nix;
    slurm.node = MODULES/slurm/compute.nix;
  };
  role = name: container.machine // {
    image = "IMAGE";
    vcpus = 2;
    modules = [
      schedulers.${scheduler}.${name}
      {
        kubernetes.specialisation.slurm.configuration = { lib, ... }: {
          imports = [ schedulers.slurm.${name} slurm ];
          nixbench.kubernetes.role = lib.mkForce null;
        };
      }.${scheduler} or { }
    ];
  };
  kubernetes = {
    imports = [ container.module ];
    networking.nameservers = [ "192.168.222.1" ]; # kubelets pass it on to pods
    nixbench.kubernetes.images = [ "/usr/share/nixbench-kube/images/probe-1.tar" ];
  };
  slurm.nixbench.slurm.controllerRole = "head";
in
{
  meta.nixpkgs = import NIXPKGS { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "URI"; poolPath = "POOL"; };
  cluster.endpoint.role = "head";
  defaults = { lib, ... }: {
    imports = [ ({ inherit kubernetes slurm; }.${scheduler} or { }) ];
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    nixbench.handover.schedulers = lib.genAttrs [ "kubernetes" "slurm" ] (_: {
      cleanup = ''
        if [ -e /run/handover-waits ]; then : >/run/handover-waiting; fi
        while [ -e /run/handover-waits ]; do sleep 0.1; done
        [ ! -e /run/handover-fails ] || report_failure "this cleanup is told to fail"
      '';
    });
  };
  roles.head = role "head";
  roles.node = role "node";
}
`

// writeHive writes hive.nix, with kubernetes, slurm or none.
func (c *cluster) writeHive(scheduler string) {
	c.Helper()
	c.WriteHiveFile(strings.NewReplacer("NIXPKGS", nixpkgs, "URI", c.Lab.URIs["lxc"], "POOL", c.Lab.PoolPath,
		"MODULES", c.Path("../../modules"), "LAB", c.Path("../lab"), "IMAGE", c.Image, "SCHEDULER", scheduler).Replace(hive))
}

// apply runs nixbench apply, which must succeed, and logs how long it has taken.
func (c *cluster) apply(what string, args ...string) {
	c.Helper()
	begin := time.Now()
	if code, _, _ := c.Try(append([]string{"apply"}, args...)...); code != 0 {
		c.Fatalf("%s: exit code %d", what, code)
	}
	c.Logf("FIGURE %s: %.1f s", what, time.Since(begin).Seconds())
}

// interrupt starts nixbench apply, waits until the cleanup of the previous scheduler runs on the node, calls then, and
// kills nixbench.
func (c *cluster) interrupt(node string, then func()) {
	c.Helper()
	c.RunOn(node, "touch /run/handover-waits")
	cmd := c.Command(c.Context(), "apply")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.WaitForOutput(time.Minute, node, "ls /run/handover-waiting", "/run/handover-waiting")
	then()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	c.Logf("nixbench apply, killed while %s was cleaned up:\n%s", node, out.String())
}

// inventory prints everything on a node that a scheduler may leave behind: processes with their control groups, control
// groups, units, mounts, interfaces, network namespaces, routes and firewall rules. It leaves out the session that it runs in.
const inventory = `shopt -s nullglob
own='/(ssh|nixbench-activate|systemd-hostnamed)\.service|/ssh@|/user\.slice|/session-|/init\.scope/'
for process in /proc/[0-9]*; do
  group=$(sed -nE 's/^(0:|[0-9]+:name=systemd)://p' "$process/cgroup" 2>/dev/null | tail -1)
  [[ $group =~ $own ]] || [ -z "$group" ] || echo "process $(cat "$process/comm") in $group"
done | sort
hierarchy=/sys/fs/cgroup; [ ! -d /sys/fs/cgroup/systemd ] || hierarchy=/sys/fs/cgroup/systemd
{ find "$hierarchy" -type d; find /sys/fs/cgroup -type d | grep -E 'kube|slurm|containerd|crio|pod'; } | sort -u | grep -vE "$own" | sed 's/^/cgroup /'
systemctl list-units --plain --no-legend --full --type=service,slice,scope,timer,path,socket,mount --state=active,failed,activating | cut -d' ' -f1 | grep -vE '^(ssh|nixbench-activate|nixbench-lab-boot|systemd-hostnamed|user|session|run-)' | sort | sed 's/^/unit /'
sed -E 's/^([^ ]+ ){4}([^ ]+) .* - ([^ ]+) .*/mount \2 \3/' /proc/self/mountinfo | grep -v /run/user | sort
ip -o link | sed -E 's/^[0-9]+: ([^:@]+).*/interface \1/' | sort
for name in /run/netns/*; do echo "namespace $name"; done
ip route | sed 's/ *$//' | sort | sed 's/^/route /'
for program in iptables ip6tables; do "$program-save" 2>/dev/null | grep -E '^-A|^:.* - ' | sed -E "s/ \[[0-9:]*\]//; s/^/$program /"; done
ls /nix/var/nix/gcroots/nixbench-handover 2>/dev/null | sed 's/^/record /'
`

// keyUnits are lines about services that watch the keys of Kubernetes, which stay on a node that goes over by specialisation.
var keyUnits = regexp.MustCompile(`(?m)^.*kubernetes-.*-key\.(service|path).*\n?`)

// inventories returns the inventory of each node.
func (c *cluster) inventories() map[string]string {
	c.Helper()
	all := map[string]string{}
	for _, node := range []string{"head-1", "node-1"} {
		all[node] = keyUnits.ReplaceAllString(c.RunOn(node, inventory), "")
	}
	return all
}

// checkInventories waits until the nodes have the same inventories as before: units that run once in a while may
// need some seconds to end.
func (c *cluster) checkInventories(what string, before map[string]string) {
	c.Helper()
	var diff string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		if diff = cmp.Diff(before, c.inventories()); diff == "" {
			c.Logf("%s: the nodes have what a fresh node has", what)
			return
		}
	}
	c.Errorf("%s: the nodes differ from fresh nodes:\n%s", what, diff)
}

const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://127.0.0.1:6443 --tls-server-name kubernetes --request-timeout 5s "

// deployment is a Deployment of two pods on workers.
const deployment = `cat <<'END' | ` + kubectl + `apply -f -
{ apiVersion: apps/v1, kind: Deployment, metadata: { name: web }, spec: { replicas: 2, selector: { matchLabels: { app: web } },
  template: { metadata: { labels: { app: web } }, spec: { containers: [ { name: main, image: localhost/probe:1, args: [ serve ] } ] } } } }
END
`

// checkKubernetes waits until both nodes are ready and the Deployment is available, and checks the identity of the cluster.
func (c *cluster) checkKubernetes(identity string) {
	c.Helper()
	c.WaitForOutput(90*time.Second, "head-1", kubectl+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`, "head-1 Ready;node-1 Ready;")
	c.WaitForOutput(90*time.Second, "head-1", kubectl+"get deployment web -o jsonpath={.status.availableReplicas}", "2")
	if got := c.identity(); got != identity {
		c.Errorf("the identity of the cluster is %s, and it was %s", got, identity)
	}
}

func (c *cluster) identity() string {
	return c.RunOn("head-1", kubectl+"get namespace kube-system -o jsonpath={.metadata.uid}")
}

// virsh runs virsh on the hypervisor of the containers.
func (c *cluster) virsh(args ...string) {
	c.Helper()
	if out, err := c.Lab.Command(c.Context(), "virsh", append([]string{"-q", "-c", c.Lab.URIs["lxc"]}, args...)...).CombinedOutput(); err != nil {
		c.Fatalf("virsh %s: %v\n%s", fmt.Sprint(args), err, out)
	}
}
