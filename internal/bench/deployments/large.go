package deployments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// prepareLarge builds the large path, and the tool's systems with it, so that the measured run only copies.
func (r *runner) prepareLarge(ctx context.Context, t *tool, h hive) error {
	nixpkgs, err := r.writeHive(ctx, t, h)
	if err != nil {
		return err
	}
	if r.large == "" {
		cmd := exec.CommandContext(ctx, "nix-build", filepath.Join(t.dir, "large.nix"), "--out-link", r.largeRoot())
		cmd.Env = t.env
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("nix-build large.nix: %w", err)
		}
		r.large = strings.TrimSpace(string(out))
	}
	_, err = t.run(ctx, r.lab, goalBuild, "", nixpkgs)
	return err
}

func (r *runner) largeRoot() string { return filepath.Join(r.options.Dir, "large") }

// checkLarge checks that the nodes, or only the first one, have the large path, and that no further node has it.
func (r *runner) checkLarge(ctx context.Context, one bool) error {
	for i, n := range r.nodes {
		_, err := n.runInside(ctx, "test", "-e", r.large)
		if wanted := !one || i == 0; wanted && err != nil {
			return fmt.Errorf("%s does not have the large path after the run: %w", n.name, err)
		} else if !wanted && err == nil {
			return fmt.Errorf("%s has the large path after the run, but only %s should", n.name, r.nodes[0].name)
		}
	}
	return nil
}

// deleteLargeOnNodes deletes the large path, and the systems that refer to it, from the nodes' stores.
func (r *runner) deleteLargeOnNodes(ctx context.Context) error {
	return r.runOnNodes(ctx, "[ ! -e "+r.large+" ] || { "+deleteScript(r.large)+"; }")
}

// deleteScript returns a command that deletes a store path, and the paths that refer to it, also if they have a root.
func deleteScript(path string) string {
	return "nix-store --delete --ignore-liveness $(nix-store --query --referrers-closure " + path + ")"
}

// runOnNodes runs a script on all nodes, one after the other, over SSH.
func (r *runner) runOnNodes(ctx context.Context, script string) error {
	var errs []error
	for _, n := range r.nodes {
		limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
		out, err := r.lab.SSH(limited, n.name, script).CombinedOutput()
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w\n%s", n.name, script, err, out))
		}
	}
	return errors.Join(errs...)
}

// removeLarge deletes the large path from this host's store. A failure is only noted: the path has no root, so the next
// garbage collection deletes it.
func (r *runner) removeLarge() {
	if r.large == "" {
		return
	}
	_ = os.Remove(r.largeRoot())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", "-c", deleteScript(r.large)).CombinedOutput(); err != nil {
		fmt.Fprintf(r.options.Progress, "%s remains in the store until the next garbage collection: %v: %s\n", r.large, err, out)
	}
}
