package kubernetes

import (
	"strings"
	"testing"
	"time"
)

// TestBootstrapFails checks that nixbench-kubernetes.service fails when its attempts have failed for the configured time,
// that nixbench reports it, that the unit does not start again by itself, and that the next deployment starts it. It also
// checks that kubeadm's preflight checks run in the first attempt, and that an API server that is down is waited for.
func TestBootstrapFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "cp", "w1")
	const unit = "systemctl show -p ActiveState -p SubState -p NRestarts --value nixbench-kubernetes | xargs"
	// The directory fails kubeadm's check DirAvailable. The worker waits for the API meanwhile.
	s.l.Run(t, "cp", "mkdir -p /var/lib/etcd/foreign")
	s.hive("bootstrap.retryFor = 10;")
	s.apply()
	s.wait(3*time.Minute, "cp", unit, "failed failed 0")
	if message := s.l.Run(t, "cp", "jq -r '.phase + \": \" + .message' /var/lib/nixbench/kubernetes.json"); !strings.Contains(message, "failed: gave up after 5 attempts: [ERROR DirAvailable--var-lib-etcd]") {
		t.Errorf("the node reports: %s", message)
	}
	if failed := s.l.Run(t, "cp", "systemctl list-units --failed --plain --no-legend"); !strings.Contains(failed, "nixbench-kubernetes.service") {
		t.Errorf("failed units: %q", failed)
	}
	if got := s.l.Run(t, "cp", "ls /etc/kubernetes/admin.conf 2>/dev/null | wc -l"); got != "0" {
		t.Error("kubeadm init has run although its preflight checks fail")
	}
	for _, args := range [][]string{{"status"}, {"check"}} {
		if _, out := s.try(args...); !strings.Contains(out, "nixbench-kubernetes.service") {
			t.Errorf("nixbench %s does not report the failed unit:\n%s", args[0], out)
		}
	}
	s.phase(10*time.Second, "w1", "waiting")
	if got := s.l.Run(t, "w1", unit); got != "active running 0" {
		t.Errorf("a worker without an API: its unit is %q, want it to wait", got)
	}

	s.l.Run(t, "cp", "rm -r /var/lib/etcd/foreign")
	s.hive("bootstrap.retryFor = 20;")
	s.apply()
	s.ready(3*time.Minute, "cp", "cp", "w1")
	s.phase(time.Minute, "cp", "ready")
	s.phase(time.Minute, "w1", "ready")
}
