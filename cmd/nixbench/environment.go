package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/failure"
)

// checkEnvironment returns an error if the working directory or the folder for temporary files cannot be used. Nix and nixbench
// need both. It is called after a failure, to find the cause of the failure.
func checkEnvironment() error {
	broken := func(what string, err error, hint string) error {
		return failure.WithHint(failure.WithKind(failure.Environment, fmt.Errorf(what, err)), hint)
	}
	if _, err := os.Getwd(); err != nil {
		return broken("the working directory cannot be used: %w", err, "it was probably deleted: change to another folder")
	}
	f, err := os.CreateTemp("", "nixbench-")
	if err == nil {
		os.Remove(f.Name()) // removed at once, so that nothing is left if the process is killed
		_, err = f.Write(make([]byte, 4096))
		f.Close()
	}
	dir, set := os.LookupEnv("TMPDIR")
	if set && !filepath.IsAbs(dir) {
		err = errors.New("TMPDIR is not an absolute path")
	}
	if err != nil {
		return broken("temporary files cannot be written: %w", err, fmt.Sprintf("set TMPDIR to a folder that you can write to and that has free space; it is %q now", dir))
	}
	return nil
}
