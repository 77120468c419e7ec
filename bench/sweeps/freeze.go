package sweeps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// freeze creates a sweep: it copies the source of the hive, and builds the systems of all configurations. folder is the folder of all
// sweeps of the hive.
func (s *Sweeps) freeze(ctx context.Context, folder string, b *Subject) (*bench.Store, error) {
	now, name := time.Now(), b.Name
	if b.isCheck {
		name += checkSuffix
	}
	sweep := bench.Sweep{
		ID: bench.NewID(name, now), Name: name, Created: now.UTC(), Hive: runs.RemoveURLSecrets(b.eval.Source.String()), Revision: deploy.ReadGitRevision(ctx, b.eval.Source.Dir),
		Nixbench: s.Request.Version, Host: readHost(ctx), Benchmark: b.Benchmark, Sets: s.Sets,
	}
	sweep.Configurations, sweep.Trials = bench.Plan(b.Benchmark)
	if err := bench.RemoveIncomplete(folder); err != nil {
		return nil, err
	}
	folder = filepath.Join(folder, sweep.ID)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if err := s.freezeInto(ctx, folder, b, &sweep); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder)) // the folder can be removed, because no machine exists yet
	}
	return bench.Create(folder, sweep, b.Jobs)
}

func readHost(ctx context.Context) bench.Host {
	h := bench.ReadHost("/")
	h.Nix, _ = inspect.NixVersion(ctx)       // ignore an error, because the evaluation reports it
	version := func(program string) string { // empty if the program is missing, such as with a hypervisor on another computer
		out, _ := exec.CommandContext(ctx, program, "--version").Output()
		line, _, _ := strings.Cut(string(out), "\n")
		return line
	}
	h.Libvirt, h.QEMU = version("virsh"), version("qemu-system-"+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH])
	return h
}

// freezeInto copies the source and the programs of workloads into the folder of the sweep, and builds the systems.
func (s *Sweeps) freezeInto(ctx context.Context, folder string, b *Subject, sweep *bench.Sweep) error {
	src := b.eval.Source
	inGit := strings.HasPrefix(src.Flake, "git+file:")
	if src.IsFlake() && !inGit && !src.Copied {
		return failure.WithHint(failure.NewUsage("the flake %s is not on this computer, and a sweep keeps a copy of its source", src.Flake), "clone it, and use --flake FOLDER")
	}
	copied, err := bench.CopySource(ctx, src.Dir, filepath.Join(folder, "source"), inGit)
	if err != nil {
		return err
	}
	sweep.Source, sweep.SourceHash, sweep.Untracked = copied.Folder, copied.Hash, copied.Untracked
	if sweep.Flake, sweep.Git, sweep.Attr = src.IsFlake(), inGit, src.Attr; !sweep.Flake {
		sweep.Source = filepath.Join(copied.Folder, filepath.Base(src.File))
	}
	var inputs []string // derivations and store paths of the programs of workloads
	for _, w := range b.Workloads {
		inputs = append(inputs, w.ProgramInputs...)
	}
	built, err := b.eval.Realise(ctx, inputs)
	if err == nil {
		err = keep(ctx, b.eval, folder, built)
	}
	if err != nil && ctx.Err() == nil {
		// Do not wrap err with %w: the caller would take it for an error of the hive.
		return failure.WithKind(failure.Build, fmt.Errorf("benchmarks.%s: build the programs of workloads: %v", b.Name, err))
	} else if err != nil {
		return err
	}
	return s.build(ctx, folder, sweep, b.selected.Unpinned || b.isCheck) // nobody repeats a check
}

// build evaluates and builds the systems of all configurations from the sweep's copy of the source. unpinned allows a nixpkgs that is not
// pinned.
func (s *Sweeps) build(ctx context.Context, folder string, sweep *bench.Sweep, unpinned bool) error {
	if sweep.Git {
		if err := bench.TrackSource(ctx, filepath.Join(folder, "source")); err != nil {
			return err
		}
	}
	cluster := s.newCluster(folder, *sweep)
	log, err := os.OpenFile(filepath.Join(folder, "freeze.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if cluster.sweep.Nixpkgs, err = cluster.findNixpkgs(ctx, log, unpinned); err != nil {
		return err
	}
	for i := range sweep.Configurations {
		c := &sweep.Configurations[i]
		wait := s.Request.Send.Wait(event.Event{Phase: event.Build, Text: fmt.Sprintf("configuration %d of %d: %s", i+1, len(sweep.Configurations), bench.NameCell(sweep.Benchmark.Cells, c.Levels))})
		err = cluster.freeze(ctx, c, log)
		wait.End()
		if err != nil && len(c.Levels) > 0 {
			err = fmt.Errorf("%s: %w", bench.FormatCell(c.Levels), err)
		}
		if err != nil {
			return err
		}
	}
	sweep.Cluster, sweep.Description, sweep.Nixpkgs = cluster.sweep.Cluster, cluster.sweep.Description, cluster.sweep.Nixpkgs
	return cluster.keepReservation()
}

// Replay repeats the sweep of an archive in a folder, or continues the repetition in this folder.
func (s *Sweeps) Replay(ctx context.Context, archive, folder string) (*bench.Store, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	lock, err := state.Dir(filepath.Join(filepath.Dir(folder), ".nixbench", "replay")).Lock(ctx, state.Self("bench replay"))
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	st, err := bench.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(folder); err == nil {
			return nil, failure.NewUsage("bench replay: %s exists and has no complete sweep; remove it, or choose another folder with --dir", folder)
		}
		st, err = s.extract(ctx, archive, folder)
	}
	if err != nil {
		return nil, err
	}
	return st, s.execute(ctx, st)
}

// extract extracts the archive of a sweep into a folder, builds the systems, and compares these with the systems of the original sweep.
func (s *Sweeps) extract(ctx context.Context, archive, folder string) (st *bench.Store, err error) {
	f, _, err := durable.Open(archive)
	if err != nil {
		return nil, failure.NewUsage("bench replay: %w", err)
	}
	defer f.Close()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", archive, err), os.RemoveAll(folder)) // no machine exists
		}
	}()
	if err := bench.ReadArchive(f, folder); err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	original, err := bench.Open(folder)
	if err != nil {
		return nil, err
	}
	// The sweep must not exist until everything is built, and the folder contains keys of the cluster.
	if err := errors.Join(os.Remove(filepath.Join(folder, "sweep.json")), durable.Write(filepath.Join(folder, ".gitignore"), []byte("*\n"))); err != nil {
		return nil, err
	}
	now := time.Now()
	sweep := original.Sweep
	sweep.RepeatOf, sweep.ID, sweep.Created, sweep.Nixbench, sweep.Host = sweep.ID, bench.NewID(sweep.Name, now), now.UTC(), s.Request.Version, readHost(ctx)
	sweep.Configurations = slices.Clone(sweep.Configurations)
	if err := s.build(ctx, folder, &sweep, true); err != nil {
		return nil, err
	}
	same, all := 0, 0
	for i, c := range sweep.Configurations {
		changed, total := bench.CompareClosures(original.Sweep.Configurations[i].Closure, c.Closure)
		same, all = same+total-len(changed), all+total
	}
	s.Request.Send.Note("%d of %d store paths identical to those of %s", same, all, sweep.RepeatOf)
	if same != all {
		s.Request.Send.Note("this is not a repetition, because the systems differ: the claims of the archive are not evaluated")
		sweep.Benchmark.Claims = nil
	}
	return bench.Repeat(folder, sweep)
}
