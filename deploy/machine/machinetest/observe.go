package machinetest

import (
	"context"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// testObserve tests that the states of machines are those of a survey, and that the machines of a hypervisor are emulated if the hypervisor
// says so.
func testObserve(b *suite) {
	one, two := b.spec("n1", 1), b.spec("n2", 2)
	b.prepare(one, two)
	b.ensure(one)
	b.ensure(two)
	wantStates := func(want map[string]provider.State, nodes ...string) {
		b.Helper()
		var got map[string]provider.State
		b.requireNoError("read the states", b.runOperation(func(ctx context.Context) (err error) {
			got, err = b.Provider.States(ctx, b.cluster, nodes)
			return err
		}))
		if !maps.Equal(got, want) {
			b.Errorf("the states of %v are %v, want %v", nodes, got, want)
		}
	}
	wantStates(map[string]provider.State{"n1": provider.Running, "n2": provider.Running}, "n1", "n2", "missing")
	b.Pause(b.T, b.domain("n1"))
	wantStates(map[string]provider.State{"n1": provider.Paused}, "n1")
	b.PowerOff(b.T, b.domain("n2"))
	wantStates(map[string]provider.State{"n1": provider.Paused, "n2": provider.Off}, "n1", "n2")

	var emulated, want []string
	if b.survey().Emulated {
		want = []string{"n1", "n2"}
	}
	b.requireNoError("list the emulated machines", b.runOperation(func(ctx context.Context) (err error) {
		emulated, err = b.Provider.Emulated(ctx, b.cluster, []string{"n1", "n2", "missing"})
		return err
	}))
	if !slices.Equal(emulated, want) {
		b.Errorf("%v are emulated, want %v", emulated, want)
	}
}
