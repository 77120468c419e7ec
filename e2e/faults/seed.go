package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// verdict is the result of the test with one seed.
type verdict string

const (
	converged verdict = "converged"
	failed    verdict = "FAILED"
	missed    verdict = "missed" // the operation had ended before the fault was injected
)

// result is the result of one seed.
type result struct {
	choice
	exit           int           // exit code of the operation; -1 if a signal ended the operation
	took, converge time.Duration // of the operation, and of the next apply
	missed         bool
	problems       []string
}

func (r result) verdict() verdict {
	switch {
	case len(r.problems) > 0:
		return failed
	case r.missed:
		return missed
	}
	return converged
}

// try runs the operation of the choice c, injects its fault, and checks the cluster afterwards. sabotage is for the
// tests of this suite: if it is not nil, try calls it after the operation and does not heal the fault.
func (s *sandbox) try(ctx context.Context, c choice, sabotage func(*sandbox) error) (r result) {
	r.choice = c
	wrong := func(problems ...string) { r.problems = append(r.problems, problems...) }
	for _, before := range c.operation.before {
		if o, err := s.apply(ctx, before); err != nil || o.code != 0 {
			wrong(fmt.Sprintf("before the operation: apply: exit code %d (%v): %s", o.code, err, o.message()))
			return r
		}
	}
	if err := s.writeHive(c.operation.wanted); err != nil {
		wrong(err.Error())
		return r
	}
	fmt.Fprintf(s.log, "\n# %s\n", c.operation.name)
	o, in, err := s.operate(ctx, c, sabotage != nil)
	if err != nil {
		wrong(fmt.Sprintf("the fault cannot be healed: %v", err))
		return r
	}
	r.exit, r.took = o.code, o.took
	switch in.err {
	case nil:
		fmt.Fprintf(s.log, "# %s after %.2f s\n", c.fault.name, in.at.Seconds())
		wrong(checkOperation(c.fault, c.victim, o, o.took-in.at)...)
	case errMissed:
		r.missed = true
		if o.code != 0 {
			wrong(fmt.Sprintf("operation: exit code %d without a fault: %s", o.code, o.message()))
		}
	default:
		wrong(fmt.Sprintf("the fault cannot be injected: %v", in.err))
		return r
	}
	if sabotage != nil {
		if err := sabotage(s); err != nil {
			wrong(err.Error())
		}
	}
	if err := s.waitForLibvirtd(ctx); err != nil {
		wrong(fmt.Sprintf("libvirtd does not answer after the fault: %v", err))
		return r
	}
	if c.again {
		wrong(s.destroyAll(ctx)...)
	}
	wrong(s.checkAfterFault(ctx, c.operation.wanted, &r)...)
	return r
}

func (s *sandbox) apply(ctx context.Context, c cluster) (outcome, error) {
	if err := s.writeHive(c); err != nil {
		return outcome{}, err
	}
	return s.run(ctx, applied...)
}

// checkAfterFault applies and checks the cluster after a fault, and returns the problems. In the end it always runs destroy.
func (s *sandbox) checkAfterFault(ctx context.Context, wanted cluster, r *result) (wrong []string) {
	next, err := s.run(ctx, applied...)
	if err != nil {
		return []string{err.Error()}
	}
	r.converge = next.took
	wrong = append(wrong, checkNextApply(next)...)
	if len(wrong) == 0 {
		idle, _ := s.run(ctx, applied...)
		wrong = append(wrong, checkNoOp(wanted, idle)...)
		wrong = append(wrong, s.checkNodeAnswers(ctx, wanted)...)
		if o, _ := s.run(ctx, "status", "--check"); o.code != 0 {
			wrong = append(wrong, fmt.Sprintf("status --check: exit code %d: %s", o.code, o.message()))
		}
		m, err := s.readState()
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		wrong = append(wrong, checkIntents(m)...)
		wrong = append(wrong, s.checkSecrets()...)
	}
	return append(wrong, s.destroyAll(ctx)...)
}

// destroyAll destroys the cluster, and returns a text for each part of the cluster that still exists.
func (s *sandbox) destroyAll(ctx context.Context) (wrong []string) {
	gone, _ := s.run(ctx, "destroy", "--yes")
	if gone.code != 0 {
		return []string{fmt.Sprintf("destroy: exit code %d: %s", gone.code, gone.message())}
	}
	m, err := s.readState()
	if err != nil {
		return []string{err.Error()}
	}
	wrong = checkStateEmpty(m)
	left, err := s.listLeftovers(ctx)
	if err != nil {
		return append(wrong, err.Error())
	}
	for _, thing := range left {
		wrong = append(wrong, "after destroy: there is still "+thing)
	}
	return wrong
}

// checkNodeAnswers asks each node for its name, its version and the hash of its key, and checks the
// answers.
func (s *sandbox) checkNodeAnswers(ctx context.Context, wanted cluster) []string {
	const script = `sed -n 's/.*"name":"\([^"]*\)".*/\1/p' /var/lib/nixbench/node.json; cat /run/current-system/etc/version; sha256sum < /run/keys/token | cut -d ' ' -f 1`
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var diag strings.Builder
	cmd := s.nixbench(ctx, "exec", "--", script)
	cmd.Stderr = &diag
	out, err := cmd.Output()
	fmt.Fprintf(s.log, "\n$ nixbench exec\n%s%s", out, diag.String())
	if err != nil {
		return []string{fmt.Sprintf("nodes: %v: %s", err, strings.TrimSpace(diag.String()))}
	}
	if wanted.count == 1 { // exec prints the output of a single node without its name
		lines := strings.SplitAfter(strings.TrimSuffix(string(out), "\n"), "\n")
		prefix := wanted.nodes()[0] + " | "
		out = []byte(prefix + strings.Join(lines, prefix))
	}
	return checkNodes(wanted, s.token, string(out))
}

// listLeftovers returns the machines, networks, pools, disks, keys and loop devices that still exist, although destroy
// should have removed all of them.
func (s *sandbox) listLeftovers(ctx context.Context) ([]string, error) {
	var left []string
	for kind, command := range map[string]string{"machine": "list", "network": "net-list", "pool": "pool-list"} {
		out, err := s.virsh(ctx, command, "--all", "--name")
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(out) {
			left = append(left, kind+" "+name)
		}
	}
	for what, root := range map[string]string{"disk": s.lab.PoolPath, "key": s.state("secrets")} {
		for path := range read(root) {
			left = append(left, what+" "+path)
		}
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), s.lab.Dir+"/") {
			left = append(left, "loop device of "+strings.TrimSpace(string(text)))
		}
	}
	return left, err
}
