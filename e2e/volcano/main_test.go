package volcano

import (
	"os"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &nixpkgs)) }
