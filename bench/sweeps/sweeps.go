// Package sweeps executes the benchmarks of a hive. It freezes a sweep, and deploys the configurations of the sweep from its copy of the
// hive. Then it runs the trials. It also repeats sweeps from archives.
package sweeps

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
)

// Sweeps executes and finds the sweeps of a hive.
type Sweeps struct {
	Request    deploy.Request       // how a session on the hive is opened
	Sets       []string             // the arguments of --set in the request
	Apply      stages.Options       // how configurations are deployed
	Schedulers map[string]Scheduler // by the kind of the scheduler's engine, such as slurm
	// Log returns a sink that writes events as text to the writer, and a function that must be called after the last event.
	Log func(io.Writer) (send event.Sink, end func())
}

// Scheduler is a scheduler that benchmarks can measure.
type Scheduler struct {
	// NewPlayer returns the player, which submits jobs to the scheduler of a cluster. settings are the player's settings in a workload.
	// client is the node on which the player's commands run. If client is empty, the commands run on the scheduler's node. With arrays, the
	// player submits equal jobs as one request.
	NewPlayer func(c engine.Cluster, client string, arrays bool, settings json.RawMessage) (player.Player, error)
	Arrays    bool // the scheduler has job arrays
	// Client is the NixOS module of a client node, from which the player submits jobs. If Client is empty, the player can submit jobs
	// only from the scheduler's node.
	Client string
}

// folderOf returns the folder that contains the sweeps of a hive. It is in the hive's state folder dir.
func folderOf(dir state.Dir) string { return filepath.Join(string(dir), "benchmarks") }

// List opens all sweeps of the hive, the oldest first. It leaves out those of Check that were interrupted.
func (s *Sweeps) List(ctx context.Context) ([]*bench.Store, error) {
	session, err := deploy.Open(ctx, s.Request)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	all, err := bench.List(folderOf(session.Dir))
	return slices.DeleteFunc(all, func(st *bench.Store) bool { return isOfCheck(st.Sweep) }), err
}

// Find opens a sweep. ref is the folder of a sweep, the beginning of a sweep's id, or "last".
func (s *Sweeps) Find(ctx context.Context, ref string) (*bench.Store, error) {
	if strings.Contains(ref, "/") {
		return openFolder(ref)
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	st, err := bench.Find(all, ref)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	return st, nil
}

func openFolder(folder string) (*bench.Store, error) {
	st, err := bench.Open(folder)
	if err != nil {
		return nil, failure.NewUsage("%s is not the folder of a sweep: %w", folder, err)
	}
	return st, nil
}

// Destroy removes the machines that interrupted sweeps of the hive have left. If folder is not empty, it removes only the
// machines of the sweep in this folder.
func (s *Sweeps) Destroy(ctx context.Context, folder string) error {
	if folder != "" {
		st, err := openFolder(folder)
		if err != nil {
			return err
		}
		return s.newCluster(st.Folder, st.Sweep).Remove(ctx, io.Discard)
	}
	session, err := deploy.Open(ctx, s.Request)
	if err != nil {
		return err
	}
	defer session.Close()
	lock, err := state.Dir(folderOf(session.Dir)).Lock(ctx, state.Self("bench destroy"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return s.removeMachines(ctx, folderOf(session.Dir), nil)
}
