package kubernetes

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// TestBootstrapFails checks that nixbench-kubernetes.service fails when its attempts have failed for the configured time,
// that nixbench reports it, that the unit does not start again by itself, and that the next deployment starts it. It also
// checks that kubeadm's preflight checks run in the first attempt, and that an API server that is down is waited for.
func TestBootstrapFails(t *testing.T) {
	t.Parallel()
	s := newStaticCluster(t, 1, "cp", "w1")
	const unit = "systemctl show -p ActiveState -p SubState -p NRestarts --value nixbench-kubernetes | xargs"
	// The directory fails kubeadm's check DirAvailable. The worker waits for the API meanwhile.
	s.l.Run(t, "cp", "mkdir -p /var/lib/etcd/foreign")
	s.writeHive("bootstrap.retryFor = 10;")
	s.runApply()
	s.waitForOutput(3*time.Minute, "cp", unit, "0 failed failed")
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
	s.waitForPhase(10*time.Second, "w1", "waiting")
	if got := s.l.Run(t, "w1", unit); got != "0 active running" {
		t.Errorf("a worker without an API: its unit is %q, want it to wait", got)
	}

	s.l.Run(t, "cp", "rm -r /var/lib/etcd/foreign")
	s.writeHive("bootstrap.retryFor = 20;")
	s.runApply()
	s.waitUntilReady(3*time.Minute, "cp", "cp", "w1")
	s.waitForPhase(time.Minute, "cp", "ready")
	s.waitForPhase(time.Minute, "w1", "ready")
}

// TestRetries runs bootstrap.sh with stand-ins for the library: load_images fails until the given attempt, and each attempt
// takes two minutes on a clock of its own.
func TestRetries(t *testing.T) {
	fixture.Require(t, "bash", "flock")
	script, err := os.ReadFile("../../modules/kubernetes/scripts/bootstrap.sh")
	if err != nil {
		t.Fatal(err)
	}
	const library = `set -u
work=$DIR records=$DIR ROLE=worker clock=0 attempt=1
start_program() { :; }
wait_for_identity() { :; }
join_worker() { :; }
annotate_cri_socket() { :; }
sleep() { :; }
systemctl() { :; }
date() { echo "$clock"; }
load_images() { clock=$((clock + 120)); [ "$attempt" -ge "$SUCCEEDS" ]; }
summarize_output() { echo reason; }
report_phase() { echo "$attempt $1${2:+: $2}"; }
`
	for _, c := range []struct {
		succeeds, retryFor string
		code               int
		last               string
	}{
		{"3", "900", 0, "3 ready"},
		{"8", "900", 0, "8 ready"},
		{"100", "900", 69, "9 failed: gave up after 9 attempts: reason"}, // 960 s after the first failure
		{"100", "0", 69, "5 failed: gave up after 5 attempts: reason"},
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", library+strings.ReplaceAll(string(script), "/proc/sys/net", "/nonexistent"))
		cmd.Env = append(os.Environ(), "DIR="+dir, "SUCCEEDS="+c.succeeds, "RETRY_FOR="+c.retryFor, "JOIN_CONFIG=")
		out, _ := cmd.Output()
		cancel()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if got := lines[len(lines)-1]; cmd.ProcessState.ExitCode() != c.code || got != c.last {
			t.Errorf("success in attempt %s, retries for %s s: exit status %d, last %q, want %d and %q", c.succeeds, c.retryFor, cmd.ProcessState.ExitCode(), got, c.code, c.last)
		}
	}
}
