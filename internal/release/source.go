package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is a checkout whose commit becomes a release.
type source struct {
	dir     string
	version string    // with v, such as v0.1.0
	commit  string    // the full hash
	time    time.Time // of the commit
}

var versionRE = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$`)

// checkSource returns the checkout in dir. It returns an error unless HEAD has the tag of the version, the checkout is
// clean, and CHANGELOG.md and package.nix have the version.
func checkSource(ctx context.Context, dir, version string) (*source, error) {
	if !versionRE.MatchString(version) {
		return nil, fmt.Errorf("%q is no version: a version is the name of its tag, such as v0.1.0", version)
	}
	status, err := git(ctx, dir, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return nil, err
	}
	if status != "" {
		return nil, fmt.Errorf("the checkout has changes; commit or remove them:\n%s", status)
	}
	commit, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	tagged, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "refs/tags/"+version+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("there is no tag %s; create it: git tag -s %s", version, version)
	}
	if tagged != commit {
		return nil, fmt.Errorf("the tag %s is commit %.12s, and HEAD is %.12s; run git checkout %s", version, tagged, commit, version)
	}
	number := strings.TrimPrefix(version, "v")
	dated := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(number) + `, [0-9]{4}-[0-9]{2}-[0-9]{2}$`)
	if err := require(filepath.Join(dir, "CHANGELOG.md"), dated, "## "+number+", YYYY-MM-DD"); err != nil {
		return nil, err
	}
	packaged := regexp.MustCompile(`version \? "` + regexp.QuoteMeta(number) + `"`)
	if err := require(filepath.Join(dir, "package.nix"), packaged, `version ? "`+number+`"`); err != nil {
		return nil, err
	}
	seconds, err := git(ctx, dir, "log", "-1", "--format=%ct", "HEAD")
	if err != nil {
		return nil, err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of commit %s: %w", commit, err)
	}
	return &source{dir, version, commit, time.Unix(at, 0).UTC()}, nil
}

func require(file string, want *regexp.Regexp, example string) error {
	data, err := os.ReadFile(file)
	if err == nil && !want.Match(data) {
		err = fmt.Errorf("%s has no line with %s; write it and commit before the tag is created", filepath.Base(file), example)
	}
	return err
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := command(ctx, dir, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// command runs a program in a folder and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
