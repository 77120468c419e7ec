package provision

import (
	"os"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &nixpkgs)) }

var emulation sync.Mutex

// emulate makes tests with emulated machines run one after the other. Such a machine keeps a processor busy all the
// time, so that with several of them at once no test on this host would be answered in time.
func emulate(t *testing.T) {
	emulation.Lock()
	t.Cleanup(emulation.Unlock)
}
