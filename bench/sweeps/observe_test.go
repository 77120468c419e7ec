package sweeps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// Emulated machines make each trial suspect, whether or not this computer has /dev/kvm.
func TestDoubts(t *testing.T) {
	hive := &nixeval.Hive{}
	recorded := &state.State{
		Cluster:  &state.Cluster{Hypervisors: map[string]provider.Hypervisor{"here": {URI: "qemu:///system"}, "there": {URI: "qemu+ssh://there/system"}}},
		Machines: map[string]state.Machine{"w-1": {Hypervisor: "here"}},
	}
	if got := doubts(hive, recorded, nil); len(got) > 0 {
		t.Errorf("got %q without emulated machines", got)
	}
	if got := doubts(hive, recorded, []string{"w-1"}); !slices.Equal(got, []string{bench.EmulatedDoubt}) {
		t.Errorf("got %q with an emulated machine", got)
	}
	recorded.Cluster.Hypervisors["here"] = provider.Hypervisor{URI: "lxc:///system"}
	if got := doubts(hive, recorded, nil); !slices.Equal(got, []string{bench.SharedKernelDoubt}) {
		t.Errorf("got %q with containers", got)
	}
	recorded.Cluster.Hypervisors["here"] = provider.Hypervisor{URI: "qemu:///system"}
	recorded.Machines["w-2"] = state.Machine{Hypervisor: "there"}
	if got := doubts(hive, recorded, nil); !slices.Equal(got, []string{"the hypervisor there is another computer, whose load was not observed"}) {
		t.Errorf("got %q with another computer", got)
	}
}

// onlyCanary returns thresholds by which only the speed of the processors is judged.
func onlyCanary(limit float64) noise.Thresholds {
	return noise.Thresholds{
		Steal: -1, ForeignCPU: -1, PSICPU: -1, Canary: limit, SwapPages: -1, Kernel: -1, Clock: -1, Frequency: -1,
	}
}

// All trials of a sweep are compared with the canary before the first one, also when the sweep is continued.
func TestReference(t *testing.T) {
	store := &bench.Store{Folder: t.TempDir()}
	store.Sweep.Benchmark.Quiet = onlyCanary(0.5)
	reference, err := loadReference(t.Context(), store)
	if err != nil || reference.Spin <= 0 {
		t.Fatalf("%+v, %v", reference, err)
	}
	if again, err := loadReference(t.Context(), store); err != nil || again != reference {
		t.Errorf("%+v, %v", again, err)
	}
	reference.Spin /= 10 // the computer has become slower since then
	if got, report := newObserver(store, reference)(t.Context(), bench.Trial{}, &bench.Running{})(); got.State != bench.Invalid || report.Reference == nil {
		t.Errorf("%s %q", got.State, got.Reasons)
	}
	if err := os.WriteFile(filepath.Join(store.Folder, "reference.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadReference(t.Context(), store); err == nil {
		t.Error("a damaged reference is accepted")
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := loadReference(interrupted, &bench.Store{Folder: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("an interrupted measurement is a reference")
	}
}

// A machine that its hypervisor reports as paused makes a trial invalid, whatever the thresholds are.
func TestPausedMachineIsInvalid(t *testing.T) {
	store := &bench.Store{Folder: t.TempDir()}
	store.Sweep.Benchmark.Quiet = onlyCanary(1000)
	state := "running"
	running := &bench.Running{States: func(context.Context) (map[string]string, error) { return map[string]string{"w-1": state}, nil }}
	for _, want := range []string{"", "the machine w-1 was paused"} {
		got, _ := newObserver(store, noise.Canary{})(t.Context(), bench.Trial{}, running)()
		if (got.State == bench.Invalid) != (want != "") || want != "" && !slices.Contains(got.Reasons, want) {
			t.Errorf("%s: %s %q", state, got.State, got.Reasons)
		}
		state = "paused"
	}
}

// A sweep records the version of Nix.
func TestReadHost(t *testing.T) {
	fixture.Require(t, "nix")
	if h := readHost(t.Context()); !regexp.MustCompile(`^nix \(.*\) [0-9.a-z]+$`).MatchString(h.Nix) || h.CPUs == 0 {
		t.Errorf("%+v", h)
	}
}
