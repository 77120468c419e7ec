package guests

import (
	"context"
	"strings"
	"time"
)

// TryOn runs a script on a node, and returns what it prints.
func (c *Cluster) TryOn(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	out, err := c.Command(ctx, "ssh", node, "--", "{ "+script+"\n} 2>&1").Output()
	return strings.TrimSpace(string(out)), err
}

// RunOn runs a script on a node, which must succeed, and returns what it prints.
func (c *Cluster) RunOn(node, script string) string {
	c.Helper()
	out, err := c.TryOn(node, script)
	if err != nil {
		c.Fatalf("%s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// WaitForOutput waits until the script on the node prints want.
func (c *Cluster) WaitForOutput(limit time.Duration, node, script, want string) {
	c.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got, _ = c.TryOn(node, script); got == want {
			return
		}
	}
	c.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

// CheckOutput checks what a script on a node prints.
func (c *Cluster) CheckOutput(node, script, want string) {
	c.Helper()
	if got := c.RunOn(node, script); got != want {
		c.Errorf("%s: %s: %q, want %q", node, script, got, want)
	}
}

// NodeStates returns a line for each node, which changes when the node is deployed, rebooted or recreated.
func (c *Cluster) NodeStates(nodes ...string) string {
	c.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, c.RunOn(node, "echo $(readlink /nix/var/nix/profiles/system; cat /proc/sys/kernel/random/boot_id)"))
	}
	return strings.Join(all, "\n")
}
