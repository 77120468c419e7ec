package kubernetes

import (
	"strconv"
	"strings"
	"time"
)

const renewal = "nixbench-kubernetes-certificates"

// served prints for how many more days the certificates of the API server and of etcd are valid.
const served = `for url in https://127.0.0.1:6443/livez https://127.0.0.1:2379/health; do
  end=$(curl -sk --noproxy '*' --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key -o /dev/null -w '%{certs}' $url | sed -n 's/^Expire date://p' | head -n 1)
  echo $((($(date -d "$end" +%s) - $(date +%s)) / 86400))
done`

// checkRenewal checks that certificates which end soon are renewed and served, and that the
// nodes stay Ready. When no certificate ends soon, the unit must change nothing.
func (s *staticCluster) checkRenewal() {
	s.Helper()
	const (
		processes = `for p in etcd kube-apiserver kube-controller kube-scheduler; do pgrep -o -x "$p"; done`
		files     = `cat /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /etc/kubernetes/*.conf | sha256sum`
		start     = `systemctl start ` + renewal + ` >/dev/null 2>&1; systemctl show -p Result --value ` + renewal
		since     = kubectl + `get nodes -o jsonpath='{range .items[*]}{.metadata.name}{.status.conditions[?(@.type=="Ready")].lastTransitionTime} {end}'`
		last      = `kubeadm certs check-expiration --config /run/nixbench/kubernetes/cluster.yaml -o json 2>/dev/null | jq '[.certificates[] | select(.missing | not) | .residualTime] | min / 86400 | floor'`
	)
	for _, node := range []string{"cp", "w1"} {
		if got := s.l.Run(s.T, node, "grep -c 'client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem' /etc/kubernetes/kubelet.conf; cat $(systemctl show -p Environment --value kubelet | tr ' ' '\\n' | sed -n 's/^CONFIG=//p') | jq .rotateCertificates"); got != "1\ntrue" {
			s.Errorf("%s: the kubelet's own certificate: %q", node, got)
		}
	}
	if got := s.l.Run(s.T, "cp", "systemctl is-active "+renewal+".timer"); got != "active" {
		s.Errorf("the timer is %s", got)
	}
	before := s.l.Run(s.T, "cp", processes+"\n"+files)
	if got := s.l.Run(s.T, "cp", start+"\n"+processes+"\n"+files); got != "success\n"+before {
		s.Errorf("no certificate ends soon, but the unit changed processes or files: from\n%s\nto\n%s", before, got)
	}

	// With a file that cannot be read the unit fails; status and check show the reason.
	s.l.Run(s.T, "cp", "cp -p /etc/kubernetes/scheduler.conf /root && : >/etc/kubernetes/scheduler.conf")
	if got := s.l.Run(s.T, "cp", start); got != "exit-code" {
		s.Errorf("with a broken file: %s", got)
	}
	for _, c := range []struct {
		code int
		args []string
	}{{0, []string{"status"}}, {9, []string{"status", "--check"}}, {9, []string{"check", "--timeout", "10s"}}} {
		code, out := s.try(c.args...)
		if code != c.code || !strings.Contains(out, renewal) || !strings.Contains(out, "check-expiration") || !strings.Contains(out, "scheduler.conf") {
			s.Errorf("%v with a failed renewal: exit code %d\n%s", c.args, code, out)
		}
	}
	s.l.Run(s.T, "cp", "mv /root/scheduler.conf /etc/kubernetes/")

	// All certificates end tomorrow. The unit is killed during the renewal, and started again.
	s.l.Run(s.T, "cp", `sed 's/"kubernetesVersion"/"certificateValidityPeriod":"24h0m0s",&/' /run/nixbench/kubernetes/cluster.yaml >/root/short.yaml && kubeadm certs renew all --config /root/short.yaml >/dev/null`)
	s.waitForOutput(90*time.Second, "cp", served, "0\n0")
	before, ready := s.l.Run(s.T, "cp", processes), s.l.Run(s.T, "cp", since)
	if got := s.run("status"); !strings.Contains(got, "its renewal was due") {
		s.Errorf("status does not report the certificates that end tomorrow:\n%s", got)
	}
	s.l.Run(s.T, "cp", `systemd-run -q --unit asked sh -c 'while sleep 0.2; do curl -skf --noproxy "*" -m 2 -o /dev/null https://127.0.0.1:6443/readyz && date +%s >>/root/answers; done'
systemctl start --no-block `+renewal+`
until [ -e /var/lib/nixbench/kubernetes/renewing ]; do sleep 0.01; done
systemctl kill --signal=KILL `+renewal)
	s.waitForOutput(20*time.Second, "cp", "systemctl is-failed "+renewal, "failed")
	began := time.Now()
	s.l.Run(s.T, "cp", "systemctl start --no-block "+renewal)
	s.waitForOutput(5*time.Minute, "cp", "systemctl show -p ActiveState -p Result --value "+renewal, "success\ninactive")
	took := time.Since(began)
	s.l.Run(s.T, "cp", "systemctl stop asked")
	gap, _ := strconv.Atoi(s.l.Run(s.T, "cp", `awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { print gap + 0 }' /root/answers`))
	s.Logf("renewed and restarted in %.1f s; the API was unavailable for at most %d s", took.Seconds(), gap)
	if gap == 0 || gap > 45 {
		s.Errorf("the API did not answer for %d s", gap)
	}
	for what, c := range map[string]struct{ script, want string }{
		"days that files are valid": {last, "364"}, "days that served certificates are valid": {served, "364\n364"}, "times at which nodes became Ready": {since, ready},
		"marker files of a renewal": {"ls /var/lib/nixbench/kubernetes | grep -E '^(renewing|restarting)'; true", ""},
	} {
		if got := s.l.Run(s.T, "cp", c.script); got != c.want {
			s.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	now := s.l.Run(s.T, "cp", processes)
	for i, old := range strings.Fields(before) {
		if fresh := strings.Fields(now); len(fresh) != 4 || fresh[i] == old {
			s.Fatalf("process ids are %q, and were %q: each of the four must have restarted", now, before)
		}
	}
	s.waitUntilReady(time.Minute, "cp", "cp", "w1")
	if got := s.l.Run(s.T, "cp", start+"\n"+processes); got != "success\n"+now {
		s.Errorf("a second start is not a no-op: %q, and before\n%s", got, now)
	}
	s.Log(s.l.Run(s.T, "cp", "journalctl -q --no-pager -o short-precise -u "+renewal))
}
