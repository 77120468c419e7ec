package schedulers

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/guests"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &nixpkgs)) }

// newCluster returns the hive of the template schedulers on an empty hypervisor of the lab.
func newCluster(t *testing.T) *guests.Cluster {
	t.Helper()
	c := guests.New(t, program, 8*time.Minute, "--kubernetes", "--slurm", "--size", "6G")
	c.WriteHiveFile(fmt.Sprintf("import %s { nixpkgs = %s; uri = %q; poolPath = %q; image = %q; }\n",
		c.Path("hive.nix"), nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, c.Image))
	return c
}
