package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "nixbench-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, nixpkgs = filepath.Join(dir, "nixbench"), filepath.Join(dir, "nixpkgs")
	if out, err := exec.Command("go", "build", "-race", "-o", program, "../../cmd/nixbench").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	if err := fixture.Assemble(nixpkgs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
