package kube

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

//go:embed testdata
var testdata embed.FS

const version = "v1.34.4"

// A cluster of a control plane and two workers that is created by kubeadm without nixbench. A
// third pod reaches a Service with pods on both workers by its DNS name.
func TestKubeadmByHand(t *testing.T) {
	c := cluster{lab.Start(t, 3, "--names", "cp1,w1,w2", "--kubernetes")}
	started := time.Now()

	c.each(t, "containerd with its images", c.Machines, func(m lab.Machine) {
		c.prepare(t, m)
	})
	c.each(t, "kubeadm init", c.Machines[:1], func(m lab.Machine) {
		c.put(t, m, "init.yaml", "/root/init.yaml", "@IP@", m.IP, "@VERSION@", version)
		c.run(t, m.Name, "kubeadm init --config /root/init.yaml")
	})
	// kubeadm join HOST:6443 --token TOKEN --discovery-token-ca-cert-hash HASH
	join := strings.Fields(c.run(t, "cp1", "kubeadm token create --print-join-command"))
	if len(join) != 7 {
		t.Fatalf("kubeadm's join command is %q", join)
	}
	c.each(t, "kubeadm join", c.Machines[1:], func(m lab.Machine) {
		c.put(t, m, "join.yaml", "/root/join.yaml",
			"@IP@", m.IP, "@ENDPOINT@", c.Machine("cp1").IP, "@TOKEN@", join[4], "@HASH@", join[6])
		c.run(t, m.Name, "kubeadm join --config /root/join.yaml")
	})

	c.step(t, "all nodes Ready", func() {
		// "--all" would wait only for nodes that are already registered.
		c.kubectl(t, "wait --for=condition=Ready --timeout=120s node/cp1 node/w1 node/w2")
	})
	c.step(t, "CoreDNS", func() {
		c.kubectl(t, "-n kube-system rollout status deployment/coredns --timeout=120s")
	})
	c.step(t, "Service", func() { c.checkService(t) })
	t.Logf("%5.1f s  in total, with machines that were up", time.Since(started).Seconds())
}

// checkService compares the names that a client gets from the Service with those of
// the pods behind it, one on each worker.
func (c cluster) checkService(t *testing.T) {
	t.Helper()
	for _, file := range []string{"server.yaml", "client.yaml"} {
		c.put(t, c.Machine("cp1"), file, "/root/"+file)
	}
	c.kubectl(t, "apply -f /root/server.yaml")
	c.kubectl(t, "rollout status daemonset/web --timeout=120s")
	c.kubectl(t, "apply -f /root/client.yaml")
	c.kubectl(t, "wait --for=condition=Complete --timeout=120s job/client")
	nodes := strings.Fields(c.kubectl(t, "get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}'"))
	slices.Sort(nodes)
	if !slices.Equal(nodes, []string{"w1", "w2"}) {
		t.Errorf("the servers are on %q", nodes)
	}
	pods := strings.Fields(c.kubectl(t, "get pods -l app=web -o jsonpath='{.items[*].metadata.name}'"))
	client := c.kubectl(t, "get pods -l job-name=client --field-selector=status.phase=Succeeded -o name")
	answers := strings.Fields(c.kubectl(t, "logs "+client))
	slices.Sort(pods)
	slices.Sort(answers)
	if got := slices.Compact(answers); !slices.Equal(got, pods) {
		t.Errorf("the Service was answered by %q, want %q", got, pods)
	}
}

// cluster is a lab whose first machine is the control plane.
type cluster struct{ *lab.Lab }

// prepare writes what a deployment would: units, configuration, the pod network.
func (c cluster) prepare(t *testing.T, m lab.Machine) {
	subnet := func(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }
	var routes strings.Builder
	for i, other := range c.Machines {
		if other.Name == m.Name {
			c.put(t, m, "network.conflist", "/etc/cni/net.d/10-pods.conflist", "@SUBNET@", subnet(i))
		} else {
			fmt.Fprintf(&routes, "ip route add %s via %s\n", subnet(i), other.IP)
		}
	}
	c.put(t, m, "containerd.toml", "/etc/containerd/config.toml")
	c.put(t, m, "containerd.service", "/etc/systemd/system/containerd.service")
	c.put(t, m, "kubelet.service", "/etc/systemd/system/kubelet.service")
	// Packets that leave the pod network need a source address that is reachable from outside.
	c.run(t, m.Name, routes.String()+`
		iptables -t nat -A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -o eth0 -j MASQUERADE
		sysctl -qw net.ipv4.ip_forward=1
		systemctl enable -q kubelet
		systemctl start containerd`)
}

// put writes a file of testdata to a machine, with parts of its text replaced.
func (c cluster) put(t *testing.T, m lab.Machine, file, to string, replace ...string) {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + file)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.SSH(ctx, m.Name, fmt.Sprintf("mkdir -p $(dirname %s) && cat > %s", to, to))
	cmd.Stdin = strings.NewReader(strings.NewReplacer(replace...).Replace(string(text)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", m.Name, to, err, out)
	}
}

// run runs a script that may take minutes on a busy host, and returns what it prints.
// It may be called by goroutines of the test, so it does not end the test itself.
func (c cluster) run(t *testing.T, machine, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stderr strings.Builder
	cmd := c.SSH(ctx, machine, "set -e; "+script)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %s: %v\n%s%s", machine, script, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func (c cluster) kubectl(t *testing.T, args string) string {
	t.Helper()
	return c.run(t, "cp1", "kubectl --kubeconfig /etc/kubernetes/admin.conf "+args)
}

// each runs a function for several machines at once.
func (c cluster) each(t *testing.T, what string, machines []lab.Machine, do func(lab.Machine)) {
	t.Helper()
	c.step(t, what, func() {
		var all sync.WaitGroup
		for _, m := range machines {
			all.Go(func() {
				started := time.Now()
				do(m)
				t.Logf("%5.1f s    %s", time.Since(started).Seconds(), m.Name)
			})
		}
		all.Wait()
	})
}

// step runs a function, logs how long it took, and ends the test if it failed: later steps
// depend on it.
func (c cluster) step(t *testing.T, what string, do func()) {
	t.Helper()
	started := time.Now()
	do()
	t.Logf("%5.1f s  %s", time.Since(started).Seconds(), what)
	if t.Failed() {
		t.Log(c.look(t))
		t.FailNow()
	}
}

// look returns the state of the cluster, for the message of a failed test.
func (c cluster) look(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, _ := c.SSH(ctx, "cp1", `export KUBECONFIG=/etc/kubernetes/admin.conf
		kubectl get nodes,pods -A -o wide; kubectl get events -A | tail -20
		journalctl --no-pager -n 30 -u kubelet -o cat`).CombinedOutput()
	return string(out)
}
