package sweeps

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// findNixpkgs describes the nixpkgs of the sweep's hive. It returns an error if this nixpkgs is not pinned, unless unpinned is true.
func (c *cluster) findNixpkgs(ctx context.Context, log io.Writer, unpinned bool) (n bench.Nixpkgs, err error) {
	s, end, err := c.open(ctx, c.sweep.Configurations[0], "", log) // all configurations have the same nixpkgs
	if err != nil {
		return n, err
	}
	defer end()
	// In pure evaluation, and without an entry for it in NIX_PATH, <nixpkgs> throws an error.
	data, err := s.Eval.Introspect(ctx, nixeval.Expression{Text: "{ pkgs, ... }: [ (toString pkgs.path) (toString (builtins.tryEval (toString <nixpkgs>)).value) ]"})
	var paths [2]string
	if err == nil {
		err = json.Unmarshal(data, &paths)
	}
	if err != nil {
		return n, fmt.Errorf("the path of nixpkgs: %w", err)
	}
	n.Path = paths[0]
	target, err := filepath.EvalSymlinks(n.Path)
	if err != nil {
		return n, fmt.Errorf("nixpkgs: %w", err)
	}
	reason := ""
	switch search, _ := filepath.EvalSymlinks(paths[1]); {
	case search == target:
		reason = "it is the one in NIX_PATH"
	case !c.isFrozen(n.Path) || !c.isFrozen(target):
		reason = "it is neither in the folder of the hive nor in the Nix store"
	}
	if n.Unpinned = reason != ""; n.Unpinned && !unpinned {
		return n, failure.WithHint(failure.NewUsage("nixpkgs (%s) is not pinned: %s, and can change, so that nobody could repeat the sweep", n.Path, reason),
			"use a flake, builtins.fetchTarball with a sha256, or a copy in the folder of the hive; or run with --unpinned")
	}
	if durable.Exists(filepath.Join(target, ".git")) { // a hash of the folder would contain the history
		n.Revision = deploy.ReadGitRevision(ctx, target)
		return n, nil
	}
	hash, err := exec.CommandContext(ctx, "nix", "--extra-experimental-features", "nix-command", "hash", "path", target).Output()
	if err != nil {
		return n, fmt.Errorf("nix hash path %s: %w", target, err)
	}
	n.NarHash = strings.TrimSpace(string(hash))
	return n, nil
}

// isFrozen reports whether a path is in the sweep's copy of the hive or in the Nix store.
func (c *cluster) isFrozen(path string) bool {
	folder, err := filepath.EvalSymlinks(c.folder)
	return strings.HasPrefix(path, c.folder+"/") || strings.HasPrefix(path, "/nix/store/") || err == nil && strings.HasPrefix(path, folder+"/")
}
