package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// checkPlanFile returns an error if `plan --out` cannot write its file. It is called before anything is evaluated.
func checkPlanFile(a *app, flags planFlags) error {
	if flags.out == "" {
		return nil
	}
	if flags.keepGoing {
		return failure.NewUsage("--out and --keep-going exclude each other: a plan file contains all selected nodes")
	}
	for _, set := range a.sets {
		if runs.SafeArgs([]string{set})[0] != set {
			path, _, _ := strings.Cut(set, "=")
			return failure.NewUsage("--out: --set %s seems to contain a secret, and a plan file must not; use deployment.keys", path)
		}
	}
	if safe := runs.SafeURLs(a.flake); safe != a.flake {
		return failure.WithHint(failure.NewUsage("--out: --flake %s contains a secret, and a plan file must not", safe),
			"Nix's option access-tokens, and ~/.netrc, contain the credentials of flakes")
	}
	return checkOutput("--out", flags.out, stages.IsPlan)
}

// checkOutput returns an error if a command cannot write the file that a flag names. If the file exists, isReplaceable says
// whether it may be replaced. An empty file, such as mktemp creates, may always be replaced.
func checkOutput(flag, file string, isReplaceable func(file string) bool) error {
	info, err := os.Stat(file)
	switch dir := filepath.Dir(file); {
	case err == nil && !info.Mode().IsRegular():
		return failure.NewUsage("%s %s: it exists and is not a file", flag, file)
	case err == nil && info.Size() > 0 && !isReplaceable(file):
		return failure.WithHint(failure.NewUsage("%s %s: the file exists, and nixbench does not replace it", flag, file), "choose another name, or remove the file")
	case !isFolder(dir):
		return failure.NewUsage("%s %s: there is no folder %s", flag, file, dir)
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
