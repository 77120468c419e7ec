package deployments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// node is a machine of the lab, as this host sees it.
type node struct {
	name  string
	group string // its cgroup
	init  uint32 // the id of its first process on this host
}

// findNodes finds the cgroups and first processes of the lab's machines.
func findNodes(l *lab.Lab, h hierarchy) ([]node, error) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", l.FirstProcess()))
	if err != nil {
		return nil, err
	}
	id, err := findLabID(string(groups))
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, m := range l.Machines {
		n := node{name: m.Name}
		if n.group, err = h.findNodeGroup(id, m.Name); err != nil {
			return nil, err
		}
		pids, err := listProcesses(n.group)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err == nil && isFirstOfContainer(string(status)) {
				n.init = pid
			}
		}
		if n.init == 0 {
			return nil, fmt.Errorf("%s: none of the %d processes in %s is the first process of a container", m.Name, len(pids), n.group)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// isFirstOfContainer reports whether /proc/PID/status is that of the first process of a container of the lab: it has an
// id on this host, one in the lab, and the id 1 in the container.
func isFirstOfContainer(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			words := strings.Fields(ids)
			return len(words) == 3 && words[2] == "1"
		}
	}
	return false
}

// runInside runs a program of the node in the node's file system, and returns its output. The program is a process of
// this host, so the node's figures do not contain it.
func (n node) runInside(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "chroot", append([]string{fmt.Sprintf("/proc/%d/root", n.init)}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s: %s: %w", n.name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// countLogins counts the logins in the journal of the node's sshd.
func (n node) countLogins(ctx context.Context) (int, error) {
	text, err := n.runInside(ctx, "journalctl", "--quiet", "-t", "sshd", "-t", "sshd-session", "-o", "cat")
	return strings.Count(text, "Accepted publickey"), err
}

// checkFile checks the content of a file of the node.
func (n node) checkFile(ctx context.Context, path, want string) error {
	got, err := n.runInside(ctx, "cat", path)
	if err == nil && strings.TrimSpace(got) != want {
		err = fmt.Errorf("%s: %s contains %q after the run, want %q", n.name, path, strings.TrimSpace(got), want)
	}
	return err
}
