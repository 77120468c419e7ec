package slurm

import (
	"strings"
	"testing"
	"time"
)

// try runs nixbench, logs its exit code and time, and fails the test unless the code is want, the messages contain each of texts, and
// the command takes less than limit.
func (c *cluster) try(want int, limit time.Duration, args string, texts ...string) {
	c.Helper()
	began := time.Now()
	code, out, diag := c.Try(strings.Fields(args)...)
	took := time.Since(began)
	c.Logf("%s: exit code %d after %.1f s", args, code, took.Seconds())
	if code != want || took > limit {
		c.Errorf("%s: exit code %d after %v, want %d within %v\n%s", args, code, took, want, limit, diag)
	}
	for _, text := range texts {
		if !strings.Contains(out+diag, text) {
			c.Errorf("%s does not say %q:\n%s%s", args, text, out, diag)
		}
	}
}

// A daemon that is down is reported by commands that change nothing, and started by apply. What keeps a daemon from working is said soon.
func TestBrokenDaemons(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	c.Run("apply")
	c.try(0, time.Minute, "status --check")
	c.try(0, time.Minute, "plan --exit-code")

	c.RunOn("controller-1", "systemctl stop slurmctld.service")
	c.try(9, time.Minute, "status --check", "the state of the members is unknown", "controller-1: slurmctld.service is stopped")
	c.try(9, time.Minute, "plan --exit-code", "controller-1: slurmctld.service is stopped")
	c.try(0, 90*time.Second, "apply", "controller-1: slurmctld.service is stopped; nixbench starts it")
	c.RunOn("compute-2", "systemctl stop slurmd.service")
	c.try(0, 90*time.Second, "apply", "compute-2: slurmd.service is stopped; nixbench starts it")

	// The disk with the state of slurmctld is full.
	c.RunOn("controller-1", `systemctl stop slurmctld.service
mount -t tmpfs -o size=2m,mode=0777 none /var/spool/slurmctld
dd if=/dev/zero of=/var/spool/slurmctld/full bs=64k 2> /dev/null; true`)
	c.try(9, 3*time.Minute, "apply", "slurmctld.service ", "the disk of /var/spool/slurmctld is full")
	c.RunOn("controller-1", "systemctl stop slurmctld.service; umount /var/spool/slurmctld; systemctl start slurmctld.service")
	c.try(0, 90*time.Second, "apply")
}

// Nodes that an administrator has taken out of service stay so, and drains of nixbench do not stay.
func TestOutOfService(t *testing.T) {
	c := newCluster(t)
	c.writeHive(3, "")
	c.Run("apply")
	c.RunOn("controller-1", "scontrol update nodename=compute-1 state=down reason='bad disk'; scontrol update nodename=compute-2 state=drain reason='bad fan'")
	const states = `for n in 1 2 3; do scontrol --oneliner show node compute-$n | grep -oE 'State=[^ ]*|Reason=bad [a-z]*' | sed s/+DYNAMIC_NORM//; done | tr '\n' ' '`
	c.CheckOutput("controller-1", states, "State=DOWN Reason=bad disk State=IDLE+DRAIN Reason=bad fan State=IDLE")

	// When compute-3 takes jobs again, slurmctld loses this, as if it was killed before it has written its state.
	c.RunOn("controller-1", `systemd-run --quiet bash -c '
state() { scontrol --oneliner show node compute-3 | grep -c DRAIN; }
until [ "$(state)" = 1 ]; do sleep 0.2; done
until [ "$(state)" = 0 ]; do sleep 0.2; done
scontrol update nodename=compute-3 state=drain reason="nixbench: it is about to change"'`)
	c.writeHive(3, `environment.etc.change.text = "2"; systemd.services.slurmd.environment.CHANGE = "2";`)
	c.try(0, 2*time.Minute, "apply", "compute-1: it is out of service and stays so: DOWN", "bad disk", "compute-2: it is out of service and stays so: IDLE+DRAIN", "compute-3: it was still drained by nixbench, and takes work again")
	c.WaitForOutput(20*time.Second, "controller-1", states+" | sed 's/IDLE+DRAIN Reason=bad disk/DOWN+DRAIN Reason=bad disk/'",
		"State=DOWN+DRAIN Reason=bad disk State=IDLE+DRAIN Reason=bad fan State=IDLE")
	for _, node := range []string{"compute-1", "compute-2", "compute-3"} {
		c.CheckOutput(node, "cat /etc/change; echo; systemctl is-active slurmd", "2\nactive")
	}
}
