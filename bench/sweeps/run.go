package sweeps

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

// Run executes a benchmark. It continues the last sweep of the benchmark if this sweep is not complete. Otherwise it begins a new sweep.
func (s *Sweeps) Run(ctx context.Context, b *Subject) (*bench.Store, error) {
	session, err := deploy.Open(ctx, s.Request)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	recorded, err := session.State()
	if err != nil {
		return nil, err
	}
	if hasMachines(recorded) { // the machines of another sweep would have the names of the new machines
		return nil, failure.WithHint(failure.NewUsage("the cluster %s is deployed from this hive, and the machines of a benchmark would have the same names", session.Hive.ClusterName()),
			"remove it first: nixbench destroy; or benchmark a copy of the hive with another cluster.name and cluster.network")
	}
	if err := session.Dir.Create(); err != nil {
		return nil, err
	}
	folder := folderOf(session.Dir)
	lock, err := state.Dir(folder).Lock(ctx, state.Self("bench run"))
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	store, err := s.findUnfinished(folder, b)
	if err != nil {
		return nil, err
	}
	if err := s.removeMachines(ctx, folder, store); err != nil {
		return nil, err
	}
	if store == nil {
		if store, err = s.freeze(ctx, folder, b); err != nil {
			return nil, err
		}
	}
	return store, s.execute(ctx, store)
}

// removeMachines removes the machines of all sweeps in a folder, except those of the sweep except, which may be nil. The machines of other sweeps must be removed because machines of several sweeps would have the same names.
func (s *Sweeps) removeMachines(ctx context.Context, folder string, except *bench.Store) error {
	all, err := bench.List(folder)
	if err != nil {
		return err
	}
	for _, st := range all {
		if except != nil && st.Sweep.ID == except.Sweep.ID {
			continue
		}
		c := s.newCluster(st.Folder, st.Sweep)
		exist, err := c.hasMachines()
		if err != nil {
			return err
		}
		if exist {
			s.Request.Send.Note("removing the machines of the sweep %s", st.Sweep.ID)
			if err := c.Remove(ctx, io.Discard); err != nil {
				return fmt.Errorf("remove the machines of the sweep %s: %w", st.Sweep.ID, err)
			}
		}
		if isOfCheck(st.Sweep) { // it was interrupted
			if err := os.RemoveAll(st.Folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// findUnfinished returns the last sweep of a benchmark, if this sweep is not complete, or has fewer blocks than the user has chosen. It
// extends such a sweep. It returns nil if a new sweep begins.
func (s *Sweeps) findUnfinished(folder string, b *Subject) (*bench.Store, error) {
	all, err := bench.List(folder)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(st *bench.Store) bool { return st.Sweep.Name != b.Name })
	if len(all) == 0 || b.selected.New {
		return nil, nil
	}
	last := all[len(all)-1]
	p, err := last.ReadProgress()
	if err != nil {
		return nil, err
	}
	complete, wanted := p.Done == p.Trials, b.Benchmark
	if complete || b.selected.Blocks == 0 && len(last.Sweep.Looks) > 0 {
		wanted.Repetitions = last.Sweep.Benchmark.Repetitions
	}
	isSame := last.Sweep.IsOf(wanted, b.Described, s.Sets)
	switch {
	case complete && isSame && b.selected.Blocks > wanted.Repetitions:
		if err := last.Extend(b.selected.Blocks); err != nil {
			return nil, failure.WithKind(failure.Usage, err)
		}
		s.Request.Send.Note("extending the sweep %s from %d to %d blocks", last.Sweep.ID, wanted.Repetitions, b.selected.Blocks)
		return last, nil
	case complete:
		return nil, nil
	case isSame:
		s.Request.Send.Note("continuing the sweep %s: %d of %d trials are done", last.Sweep.ID, p.Done, p.Trials)
		return last, nil
	}
	s.Request.Send.Note("the benchmark was changed since the sweep %s, which is not complete; a new sweep begins", last.Sweep.ID)
	return nil, nil
}

// execute executes those trials of a sweep that are not done, and removes the machines of the sweep.
func (s *Sweeps) execute(ctx context.Context, store *bench.Store) error {
	sweep, send := store.Sweep, s.Request.Send
	cluster := s.newCluster(store.Folder, sweep)
	var wait *event.Wait
	defer func() { wait.End() }()
	reference, err := loadReference(ctx, store)
	if err != nil {
		return err
	}
	history, err := readHistory(store)
	if err != nil {
		return err
	}
	expectLeft := func() results.Duration {
		all, _ := store.AllAttempts() // the runner reports an error
		return history.Expect(slices.DeleteFunc(slices.Clone(sweep.Trials), func(t bench.Trial) bool { return sweep.IsDone(all[t.Number]) }))
	}
	began, left := time.Now(), expectLeft()
	r := &bench.Runner{
		Store: store, Cluster: cluster, Observe: newObserver(store, reference),
		Step: func(t bench.Trial, what string) {
			wait.End()
			text := fmt.Sprintf("trial %d of %d (%s), %s: %s", t.Number, len(sweep.Trials), left.Left(), what, bench.NameCell(sweep.Benchmark.Cells, t.Cell))
			wait = send.Wait(event.Event{Phase: event.Check, Text: text})
		},
		End: func(t bench.Trial, at bench.Attempt) {
			wait.End()
			history.Add(sweep, t, at)
			left = expectLeft()
			send.Note("%s; %s", results.DescribeAttempt(sweep, t, at), left.Left())
		},
	}
	if !isOfCheck(sweep) {
		send.Note("sweep %s: %d trials; results are in %s", sweep.ID, len(sweep.Trials), store.Folder)
	}
	send.Note("%s", left)
	if err := r.Run(ctx); err != nil {
		wait.End()
		send.Note("the machines of the sweep remain; %s", s.describeNext(store))
		return err
	}
	if err := cluster.Remove(ctx, io.Discard); err != nil {
		return fmt.Errorf("remove the machines of the sweep: %w", err)
	}
	p, err := store.ReadProgress()
	if err == nil {
		send.Note("%s", results.DescribeProgress(p, time.Since(began)))
	}
	return err
}

// readHistory reads how long the trials of a sweep, and of earlier sweeps in the same folder, took.
func readHistory(store *bench.Store) (*results.History, error) {
	former := []*bench.Store{store}
	jobs := map[string][]workload.Job{}
	var err error
	if store.Sweep.RepeatOf == "" { // the sweep of an archive is in a folder of the user
		if former, err = bench.List(filepath.Dir(store.Folder)); err != nil {
			return nil, err
		}
	}
	for name := range store.Sweep.Workloads {
		if jobs[name], err = store.ReadWorkload(name); err != nil {
			return nil, err
		}
	}
	return results.NewHistory(store.Sweep.Benchmark, store.Sweep.Workloads, jobs, former)
}

// describeNext returns which commands continue a sweep that was interrupted, and remove its machines.
func (s *Sweeps) describeNext(store *bench.Store) string {
	args := slices.DeleteFunc(slices.Clone(s.Request.Args), func(arg string) bool { return arg == "--new" })
	again, destroy := "nixbench "+shellescape.QuoteCommand(args), "nixbench bench destroy"
	if store.Sweep.RepeatOf != "" {
		destroy += " " + shellescape.Quote(store.Folder)
	}
	verb := map[bool]string{false: "continues it", true: "begins again"}[isOfCheck(store.Sweep)]
	return fmt.Sprintf("%s %s, and %s removes them", again, verb, destroy)
}
