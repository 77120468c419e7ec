package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// kit has the files that all seeds share: they are built once.
type kit struct {
	dir     string
	program string // nixbench
	nixpkgs string // the fixture
	image   string // of containers
}

// assemble builds nixbench, the fixture, and the image unless it is cached.
func assemble() (*kit, error) {
	dir, err := os.MkdirTemp("", "nixbench-faults-")
	if err != nil {
		return nil, err
	}
	k := &kit{dir: dir, program: filepath.Join(dir, "nixbench"), nixpkgs: filepath.Join(dir, "nixpkgs")}
	repository, err := fixture.Repository()
	if err != nil {
		return k, err
	}
	build := exec.Command("go", "build", "-o", k.program, "./cmd/nixbench")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		return k, fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := fixture.Assemble(k.nixpkgs); err != nil {
		return k, err
	}
	k.image, err = lab.BuildImage("container")
	return k, err
}

func (k *kit) remove() {
	if k != nil {
		_ = os.RemoveAll(k.dir)
	}
}
