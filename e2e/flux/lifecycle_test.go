package flux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// online prints the nodes that are online, with their states.
const online = "flux resource status --states=online,avail,exclude,drain --no-header --format='{state} {nodelist}' | grep -v ' $' | sort | tr '\\n' ';'"

// One instance from its creation on an empty hypervisor to its destruction: it is scaled up, and down while a job runs
// on all of its nodes; its systems are changed while jobs run and are queued.
func TestLifecycle(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	began := time.Now()
	c.Run("apply")
	t.Logf("from an empty hypervisor to 1 + 2 nodes: %.1f s", time.Since(began).Seconds())
	c.CheckOutput("leader-1", online, "avail compute-[1-2];exclude leader-1;")
	began = time.Now()
	c.CheckOutput("leader-1", owner+"flux run -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	t.Logf("flux run -N2 hostname, with a login: %.1f s", time.Since(began).Seconds())
	c.Run("status", "--check")
	c.Run("check", "--deep")
	c.checkKey()
	began = time.Now()
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 3 {
		t.Error("a second apply is not a no-op")
	}
	t.Logf("apply with nothing to do: %.1f s", time.Since(began).Seconds())

	// Scaling does not change the other nodes, and no broker restarts.
	others := c.NodeStates("leader-1", "compute-1", "compute-2")
	c.Run("apply", "--set", "roles.compute.count=3")
	c.CheckOutput("leader-1", online, "avail compute-[1-3];exclude leader-1;")
	job := c.submit("-N3", "sleep 20")
	c.WaitForOutput(time.Minute, "leader-1", "flux jobs --no-header -A --format='{status} {nnodes}'", "RUN 3")
	if out := c.Run("apply", "--set", "roles.compute.count=2", "--yes", "-v"); !strings.Contains(out, "waits for jobs "+job) {
		t.Errorf("the drain has not reported job %s", job)
	}
	c.waitForJob(10*time.Second, job)
	c.CheckOutput("leader-1", online, "avail compute-[1-2];exclude leader-1;")
	if now := c.NodeStates("leader-1", "compute-1", "compute-2"); now != others {
		t.Errorf("scaling has changed other nodes: from\n%s\nto\n%s", others, now)
	}

	c.changeUnderJobs()

	// A drained node fails the check, and another run does not end the drain.
	c.RunOn("leader-1", "flux resource drain compute-2 bad disk")
	if code, _, diag := c.Try("check", "--timeout", "8s"); code != 9 || !strings.Contains(diag, "compute-2 is drained (bad disk)") {
		t.Errorf("check with a drained node: exit code %d", code)
	}
	c.RunOn("leader-1", "flux resource undrain compute-2")
	c.Run("destroy", "--yes")
}

// changeUnderJobs changes the systems of all nodes while a job runs and others are queued, and then the configuration of
// Flux, which restarts all brokers. No job is lost.
func (c *cluster) changeUnderJobs() {
	c.Helper()
	long := c.submit("-N1 --requires=hosts:compute-1", "sleep 8")
	c.WaitForOutput(time.Minute, "leader-1", "flux jobs --no-header -A --format='{status} {nodelist}'", "RUN compute-1")
	var jobs []string
	for range 4 {
		jobs = append(jobs, c.submit("-N2 --exclusive", "sleep 1"))
	}
	began := time.Now()
	c.writeHive(2, `environment.etc.change.text = "2";`)
	c.Run("apply")
	c.Logf("a change of three nodes under jobs: %.1f s", time.Since(began).Seconds())
	for _, job := range append(jobs, long) {
		c.waitForJob(time.Minute, job)
	}
	for _, node := range []string{"leader-1", "compute-1", "compute-2"} {
		c.CheckOutput(node, "cat /etc/change", "2")
	}

	pids := c.brokers()
	long = c.submit("-N2", "sleep 5")
	c.WaitForOutput(time.Minute, "leader-1", "flux jobs --no-header -A --format='{status} {nnodes}'", "RUN 2")
	queued := c.submit("-N2 --exclusive", "sleep 1")
	c.writeHive(2, `environment.etc.change.text = "2"; nixbench.flux.settings.job-manager.inactive-age-limit = "7d";`)
	began = time.Now()
	c.Run("apply")
	c.Logf("a change that restarts all brokers, under jobs: %.1f s", time.Since(began).Seconds())
	c.waitForJob(time.Minute, long)
	c.waitForJob(time.Minute, queued)
	if now := c.brokers(); now == pids {
		c.Error("no broker was restarted")
	}
	c.Run("check", "--deep")

	// A job that does not end in time blocks the change of its node, which takes jobs again.
	hangs := c.submit("-N1 --requires=hosts:compute-1", "sleep 600")
	c.WaitForOutput(time.Minute, "leader-1", "flux jobs --no-header -A --format='{status} {nodelist}'", "RUN compute-1")
	c.writeHive(2, `environment.etc.change.text = "3"; nixbench.flux.drainTimeout = 2; nixbench.flux.settings.job-manager.inactive-age-limit = "7d";`)
	code, _, diag := c.Try("apply", "--on", "compute-1")
	if code == 0 || !strings.Contains(diag, "compute-1: drain: after 2s it still has jobs "+hangs) {
		c.Errorf("apply with a job that does not end: exit code %d", code)
	}
	c.CheckOutput("leader-1", online+"; flux jobs --no-header --format='{status}' "+hangs, "avail compute-[1-2];exclude leader-1;RUN")
	c.CheckOutput("compute-1", "cat /etc/change", "2")
	c.RunOn("leader-1", "flux cancel "+hangs)
}

// brokers returns the process ids of all brokers.
func (c *cluster) brokers() string {
	c.Helper()
	var pids []string
	for _, node := range []string{"leader-1", "compute-1", "compute-2"} {
		pids = append(pids, c.RunOn(node, "systemctl show --property=MainPID --value flux.service"))
	}
	return strings.Join(pids, " ")
}

// checkKey checks that all nodes have the same certificate, that only flux can read it, and that the secret key is in no
// store path, journal, argument of a process, and in nothing that nixbench has recorded except its vault.
func (c *cluster) checkKey() {
	c.Helper()
	const key = "/var/lib/nixbench/secrets/flux-curve.cert"
	sum := c.RunOn("leader-1", "sha256sum "+key)
	for _, node := range []string{"leader-1", "compute-1", "compute-2"} {
		c.CheckOutput(node, "sha256sum "+key+"; stat -c '%U %a' "+key, sum+"\nflux 400")
	}
	// The same search finds the key in its own file, the path of the file in the store, and the broker's arguments.
	search := `sed -n 's/.*secret-key = "\(.*\)"/\1/p' ` + key + ` > /run/key
grep -rlFf /run/key /nix/store/*-system-path* /nix/store/*etc* /nix/store/*unit* /nix/store/*flux* ` + key + ` 2> /dev/null
journalctl --no-pager | grep -cFf /run/key
cat /proc/*/cmdline 2> /dev/null | tr '\0' '\n' | grep -cFf /run/key
rm /run/key
grep -rqF ` + key + ` /nix/store/*flux.toml && cat /proc/*/cmdline 2> /dev/null | tr '\0' '\n' | grep -q config-path && echo searched`
	c.CheckOutput("leader-1", search, key+"\n0\n0\nsearched")
	secret := c.RunOn("leader-1", "sed -n 's/.*secret-key = \"//p' "+key+" | cut -c 1-40")
	if len(secret) != 40 {
		c.Fatalf("the secret key has %d characters", len(secret))
	}
	encoded := c.RunOn("leader-1", "base64 -w0 "+key)
	found := 0
	_ = filepath.WalkDir(c.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		data, _ := os.ReadFile(path)
		switch text := string(data); {
		case strings.Contains(text, encoded) && (strings.Contains(path, "vault") || strings.Contains(path, "secrets")):
			found++
		case strings.Contains(text, encoded), strings.Contains(text, secret):
			c.Errorf("%s contains the key", path)
		}
		return nil
	})
	if found == 0 {
		c.Error("the search does not find the key in the vault")
	}
}
