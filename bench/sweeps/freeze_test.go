package sweeps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/null"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// newSweeps returns the sweeps of a hive with one node, which runs a scheduler, on a simulated hypervisor.
func newSweeps(t *testing.T, h *fake.Hypervisor) *Sweeps {
	t.Helper()
	folder := t.TempDir()
	image := filepath.Join(folder, "image.raw")
	hive := fmt.Sprintf(`{
  meta.nixpkgs = import %s { };
  cluster.network = { name = "bench"; cidr = "192.168.77.0/24"; };
  roles.head.image = %s;
  roles.head.modules = [
    ({ name, ... }: { environment.etc.level.text = "none"; deployment.engine = { kind = "slurm"; role = "controller"; }; })
  ];
  benchmarks.b = { lib, ... }: {
    matrix.size.large.roles.head = [ ({ lib, ... }: { environment.etc.level.text = lib.mkForce "large"; }) ];
    matrix.size.small = [ ];
    workloads.one.jobs = [ { id = "a"; } ];
  };
}`, fixture.Nixpkgs(t), image)
	for file, text := range map[string]string{filepath.Join(folder, "hive.nix"): hive, image: "image"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Sweeps{
		Request: deploy.Request{
			File: filepath.Join(folder, "hive.nix"),
			Hypervisors: func(event.Sink) machine.Opener {
				return func(string, provider.Hypervisor) (provider.Provider, error) { return h, nil }
			},
			Describe: func(err error) (int, error) { return 1, err },
		},
		Schedulers: map[string]Scheduler{"slurm": {NewPlayer: func(engine.Cluster, string, bool, json.RawMessage) (player.Player, error) {
			return null.New(0), nil
		}}},
		Log: func(io.Writer) (event.Sink, func()) { return nil, func() {} },
	}
}

// freezeNow freezes the benchmark of a hive.
func freezeNow(t *testing.T, s *Sweeps) *bench.Store {
	t.Helper()
	b, err := s.Load(t.Context(), Selection{Seed: -1, Unpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(filepath.Dir(s.Request.File), ".nixbench", "hive", "benchmarks")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := s.freeze(t.Context(), folder, b)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// A sweep is frozen with the systems of each configuration, and keeps the addresses and keys for the next sweep. No machine exists.
func TestFreeze(t *testing.T) {
	h := fake.New()
	s := newSweeps(t, h)
	var ids []string
	var systems []map[string]bench.System
	for range 2 {
		store := freezeNow(t, s)
		again, err := bench.Open(store.Folder)
		if err != nil || len(again.Sweep.Configurations) != 2 || again.Sweep.Cluster != "hive" {
			t.Fatalf("%+v, %v", again, err)
		}
		for _, c := range again.Sweep.Configurations {
			if c.Systems["head-1"].Path == "" || len(c.Closure) == 0 {
				t.Errorf("%+v", c)
			}
			systems = append(systems, c.Systems)
		}
		recorded, err := state.Dir(filepath.Join(store.Folder, ".nixbench", "reservation")).Load()
		if err != nil || len(recorded.Machines) != 1 || hasMachines(recorded) {
			t.Errorf("the reservation: %+v, %v", recorded, err)
		}
		ids = append(ids, recorded.Cluster.ID)
		c := s.newCluster(store.Folder, again.Sweep)
		if exist, err := c.hasMachines(); err != nil || exist {
			t.Errorf("machines exist: %t, %v", exist, err)
		}
		if err := c.Remove(t.Context(), io.Discard); err != nil {
			t.Error(err)
		}
	}
	if len(h.Objects()) > 0 {
		t.Errorf("the hypervisor has %q", h.Objects())
	}
	if ids[0] != ids[1] || fmt.Sprint(systems[:2]) != fmt.Sprint(systems[2:]) || systems[0]["head-1"] == systems[1]["head-1"] {
		t.Errorf("clusters %q, systems %v", ids, systems)
	}
}

// A deployment that fails leaves machines, which Remove removes. The cluster then has the same addresses and keys as before.
func TestRemove(t *testing.T) {
	h := fake.New()
	s := newSweeps(t, h)
	s.Apply = stages.Options{Parallel: 1, BootTimeout: time.Second}
	s.Apply.Goal = node.Switch
	store := freezeNow(t, s)
	c := s.newCluster(store.Folder, store.Sweep)
	if _, err := c.Deploy(t.Context(), store.Sweep.Configurations[0], io.Discard); err == nil || len(h.Objects()) == 0 {
		t.Fatalf("a machine that does not answer: %v, objects %q", err, h.Objects())
	}
	if exist, err := c.hasMachines(); err != nil || !exist {
		t.Errorf("machines exist: %t, %v", exist, err)
	}
	if err := c.Remove(t.Context(), io.Discard); err != nil || len(h.Objects()) > 0 {
		t.Errorf("the hypervisor has %q, %v", h.Objects(), err)
	}
	reserved, err := state.Dir(filepath.Join(store.Folder, ".nixbench", "reservation")).Load()
	if err != nil {
		t.Fatal(err)
	}
	if recorded, err := c.state.Load(); err != nil || recorded.Cluster == nil || recorded.Cluster.ID != reserved.Cluster.ID || hasMachines(recorded) {
		t.Errorf("the state: %+v, %v", recorded, err)
	}
}

// Check tells why the trials of all cells have no result, and leaves neither a sweep nor a machine. It removes an interrupted check.
func TestCheck(t *testing.T) {
	h := fake.New()
	s := newSweeps(t, h)
	s.Apply = stages.Options{Parallel: 1, BootTimeout: time.Second}
	s.Apply.Goal = node.Switch
	b, err := s.Load(t.Context(), Selection{Seed: -1})
	if err != nil {
		t.Fatal(err)
	}
	b.isCheck = true
	folder := filepath.Join(filepath.Dir(s.Request.File), ".nixbench", "hive", "benchmarks")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	interrupted, err := s.freeze(t.Context(), folder, b)
	if err != nil {
		t.Fatal(err)
	}
	c := s.newCluster(interrupted.Folder, interrupted.Sweep)
	if _, err := c.Deploy(t.Context(), interrupted.Sweep.Configurations[0], io.Discard); err == nil || len(h.Objects()) == 0 {
		t.Fatalf("a machine that does not answer: %v, objects %q", err, h.Objects())
	}
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the sweep of a check is listed: %v, %v", all, err)
	}
	b.isCheck = false
	check, err := s.Check(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range check.Cells {
		if cell.State != bench.Failed || cell.Seconds <= 0 || !strings.Contains(strings.Join(cell.Reasons, "; "), "deploy: ") {
			t.Errorf("%+v", cell)
		}
	}
	if d := check.Duration; len(check.Cells) != 2 || d.Trials != 12 || d.Measured != 0 || !d.Assumed || check.Problems() == nil {
		t.Errorf("%+v, %v", check, check.Problems())
	}
	if left, err := bench.List(folder); err != nil || len(left) > 0 || len(h.Objects()) > 0 || b.Repetitions != 6 {
		t.Errorf("sweeps %v, %v; machines %q; %d blocks", left, err, h.Objects(), b.Repetitions)
	}
}

// What a benchmark cannot measure is an error before anything is built, and leaves no folder.
func TestFreezeRefuses(t *testing.T) {
	for want, change := range map[string]func(*Sweeps, *Subject){
		"nixbench cannot submit the jobs of a benchmark to SLURM": func(s *Sweeps, _ *Subject) { s.Schedulers = nil },
		"the hive has no node of this role":                       func(_ *Sweeps, b *Subject) { b.Client = "nosuch" },
	} {
		s := newSweeps(t, fake.New())
		b, err := s.Load(t.Context(), Selection{Seed: -1, Unpinned: true})
		if err != nil {
			t.Fatal(err)
		}
		change(s, b)
		folder := t.TempDir()
		if _, err := s.freeze(t.Context(), folder, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if entries, _ := os.ReadDir(folder); len(entries) > 0 {
			t.Errorf("%s: the folder has %v", want, entries)
		}
	}
}

// A nixpkgs in the folder of the hive is pinned, unless it comes from NIX_PATH. A sweep records its hash.
func TestNixpkgs(t *testing.T) {
	s := newSweeps(t, fake.New())
	folder := filepath.Dir(s.Request.File)
	nixpkgs := filepath.Join(folder, "nixpkgs")
	if err := fixture.Assemble(nixpkgs); err != nil {
		t.Fatal(err)
	}
	hive, err := os.ReadFile(s.Request.File)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	freeze := func(path string, unpinned bool) (*bench.Store, error) {
		t.Helper()
		write("hive.nix", regexp.MustCompile("meta.nixpkgs = import [^ ]+").ReplaceAllLiteralString(string(hive), "meta.nixpkgs = import "+path))
		b, err := s.Load(t.Context(), Selection{Seed: -1, Unpinned: unpinned})
		if err != nil {
			t.Fatal(err)
		}
		return s.freeze(t.Context(), t.TempDir(), b)
	}
	store, err := freeze("./nixpkgs", false)
	if err != nil {
		t.Fatal(err)
	}
	if n := store.Sweep.Nixpkgs; !strings.HasPrefix(n.NarHash, "sha256-") || n.Unpinned || !strings.HasSuffix(n.Path, "/source/nixpkgs") {
		t.Errorf("%+v", n)
	}
	t.Setenv("NIX_PATH", "nixpkgs="+nixpkgs)
	for path, want := range map[string]string{"<nixpkgs>": "it is the one in NIX_PATH", fixture.Nixpkgs(t): "it is neither in the folder of the hive nor in the Nix store"} {
		if _, err := freeze(path, false); err == nil || !strings.Contains(err.Error(), want) || failure.KindOf(err) != failure.Usage {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if store, err = freeze("<nixpkgs>", true); err != nil || !store.Sweep.Nixpkgs.Unpinned {
		t.Errorf("%v, %+v", err, store)
	}
}

// The message of a repetition that was interrupted names the commands that continue it and remove its machines, and the same archive continues
// it. Each trial tells how much time is left.
func TestReplayContinues(t *testing.T) {
	h := fake.New()
	s := newSweeps(t, h)
	s.Apply = stages.Options{Parallel: 1, BootTimeout: time.Second}
	s.Apply.Goal = node.Switch
	folder := t.TempDir()
	archive, repetition := filepath.Join(folder, "sweep.tar.gz"), filepath.Join(folder, "a repetition")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(freezeNow(t, s).WriteArchive(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	s.Request.Args = []string{"bench", "replay", archive, "--dir", repetition}
	replay := func(until string) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var notes []string
		s.Request.Send = func(e event.Event) {
			if e.Kind == event.Message {
				notes = append(notes, e.Text)
			}
			if strings.HasPrefix(e.Text, until) {
				cancel()
			}
		}
		if _, err := s.Replay(ctx, archive, repetition); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v; %q", err, notes)
		}
		return strings.Join(notes, "\n")
	}
	notes := replay("expected duration: ")
	again := fmt.Sprintf("the machines of the sweep remain; nixbench bench replay %s --dir '%s' continues it, and nixbench bench destroy '%[2]s' removes them", archive, repetition)
	if !strings.HasSuffix(notes, again) || !strings.Contains(notes, "store paths identical") {
		t.Errorf("%s\nwant %s", notes, again)
	}
	if notes := replay("trial 1 of 12: "); strings.Contains(notes, "store paths identical") || !regexp.MustCompile(`(?m)^trial 1 of 12: size=(large|small): failed: deploy: .*; about 13m0s left$`).MatchString(notes) {
		t.Errorf("the repetition was not continued:\n%s", notes)
	}
	if err := s.Destroy(t.Context(), repetition); err != nil || len(h.Objects()) > 0 {
		t.Errorf("%v, machines %q", err, h.Objects())
	}
}
