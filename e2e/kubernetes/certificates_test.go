package kubernetes

import (
	"strconv"
	"strings"
	"time"
)

const renewal = "nixbench-kubernetes-certificates"

// served is how many days the certificates last that the API server and etcd show.
const served = `for url in https://127.0.0.1:6443/livez https://127.0.0.1:2379/health; do
  end=$(curl -sk --noproxy '*' --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key -o /dev/null -w '%{certs}' $url | sed -n 's/^Expire date://p' | head -n 1)
  echo $((($(date -d "$end" +%s) - $(date +%s)) / 86400))
done`

// renewal wants certificates that are about to end to be renewed and in use, with all
// that was there before still there.
func (s *site) renewal() {
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
		s.Errorf("nothing ends, and it has done something: from\n%s\nto\n%s", before, got)
	}

	// One that cannot be read: the unit fails, and says why wherever one looks.
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

	// All of them end tomorrow. Killed in its midst, and again.
	s.l.Run(s.T, "cp", `sed 's/"kubernetesVersion"/"certificateValidityPeriod":"24h0m0s",&/' /run/nixbench/kubernetes/cluster.yaml >/root/short.yaml && kubeadm certs renew all --config /root/short.yaml >/dev/null`)
	s.wait(90*time.Second, "cp", served, "0\n0")
	before, ready := s.l.Run(s.T, "cp", processes), s.l.Run(s.T, "cp", since)
	if got := s.nixbench("status"); !strings.Contains(got, "should have been renewed") {
		s.Errorf("status says nothing of certificates that end tomorrow:\n%s", got)
	}
	s.l.Run(s.T, "cp", `systemd-run -q --unit asked sh -c 'while sleep 0.2; do curl -skf --noproxy "*" -m 2 -o /dev/null https://127.0.0.1:6443/readyz && date +%s >>/root/answers; done'
systemctl start --no-block `+renewal+`
until [ -e /var/lib/nixbench/kubernetes/renewing ]; do sleep 0.01; done
systemctl kill --signal=KILL `+renewal)
	s.wait(20*time.Second, "cp", "systemctl is-failed "+renewal, "failed")
	began := time.Now()
	s.l.Run(s.T, "cp", "systemctl start --no-block "+renewal)
	s.wait(5*time.Minute, "cp", "systemctl show -p ActiveState -p Result --value "+renewal, "success\ninactive")
	took := time.Since(began)
	s.l.Run(s.T, "cp", "systemctl stop asked")
	gap, _ := strconv.Atoi(s.l.Run(s.T, "cp", `awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { print gap + 0 }' /root/answers`))
	s.Logf("renewed and restarted in %.1f s; the API was away for %d s at most", took.Seconds(), gap)
	if gap == 0 || gap > 45 {
		s.Errorf("the API did not answer for %d s", gap)
	}
	for what, c := range map[string]struct{ script, want string }{
		"days that are left": {last, "364"}, "days on the wire": {served, "364\n364"}, "since when nodes are Ready": {since, ready},
		"notes of what is to be done": {"ls /var/lib/nixbench/kubernetes | grep -E '^(renewing|restarting)'; true", ""},
	} {
		if got := s.l.Run(s.T, "cp", c.script); got != c.want {
			s.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	now := s.l.Run(s.T, "cp", processes)
	for i, old := range strings.Fields(before) {
		if fresh := strings.Fields(now); len(fresh) != 4 || fresh[i] == old {
			s.Fatalf("processes are %q, and were %q", now, before)
		}
	}
	s.ready(time.Minute, "cp", "cp", "w1")
	if got := s.l.Run(s.T, "cp", start+"\n"+processes); got != "success\n"+now {
		s.Errorf("a second start is not for nothing: %q, and before\n%s", got, now)
	}
	s.Log(s.l.Run(s.T, "cp", "journalctl -q --no-pager -o short-precise -u "+renewal))
}
