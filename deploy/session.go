package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
)

// Session is what a command works with: the hive and the selected nodes, the cluster's state, and the connections to nodes and
// hypervisors. A connection is made when it is first used.
type Session struct {
	Eval     *nixeval.Evaluator
	Hive     *nixeval.Hive
	Nodes    []nixeval.Node     // the nodes that the request selects, without those that are away
	Away     []state.NodeResult // the selected nodes that may be away, and at whose hosts nothing answers
	Dir      state.Dir
	Lock     *state.Lock // nil: the command only reads
	Fleet    *fleet.Fleet
	Machines *machine.Manager

	request Request
	run     atomic.Pointer[stages.Deployer] // of the run that is being recorded; nil: none
}

// Open reads the structure of the hive, checks its state folder, and selects the nodes. For a command that changes something, it
// takes the cluster's lock. Open is the only way to get a Session. The caller closes the session.
func Open(ctx context.Context, r Request) (*Session, error) {
	s := &Session{request: r}
	r.Eval.Send = s.Send
	var err error
	if s.Eval, err = r.Evaluator(); err != nil {
		return nil, err
	}
	on, err := selection.ParseSelector(r.On)
	if err != nil {
		return nil, err
	}
	if err := survey(ctx, s); err != nil {
		return nil, err
	}
	if err := selectNodes(s, on); err != nil {
		return nil, err
	}
	if r.System != "" {
		s.Eval.Evaluated = &nixeval.Evaluated{Systems: map[string]nixeval.Closure{s.Nodes[0].Unit: {Drv: r.System, Out: r.System}}}
	}
	if r.Command != "" {
		if s.Lock, err = s.Dir.Lock(ctx, state.Self(r.Command)); err != nil {
			return nil, err
		}
	}
	s.Machines = &machine.Manager{
		Hive: s.Hive, Dir: s.Dir, Vault: vault.Open(s.Dir.Vault()), Open: r.Hypervisors(s.Send), Eval: s.Eval, Send: s.Send,
		Keep:    func(built map[string]nixeval.Closure) error { return keepRoots(ctx, s.Eval, s.Dir, built) },
		APIPort: defaultAPIPort(s.Hive), AccessFiles: accessFiles(),
	}
	loaded := sync.OnceValues(s.Dir.Load)
	machineOf := func(node string) (state.Machine, *state.Cluster, error) {
		if run := s.run.Load(); run != nil {
			return run.Store.MachineOf(node)
		}
		recorded, err := loaded()
		if err != nil {
			return state.Machine{}, nil, err
		}
		return recorded.MachineOf(node)
	}
	s.Fleet = fleet.New(s.Hive, fleet.Options{
		Options: remote.Options{AcceptNewHostKeys: r.AcceptNewHostKeys, Prompt: r.Prompt, Send: s.Send, Down: func(ctx context.Context, node string) string {
			m, cluster, err := machineOf(node)
			if err != nil {
				return ""
			}
			return machine.DescribeDown(ctx, r.Hypervisors(nil), s.Hive.ClusterName(), node, m, cluster)
		}},
		Programs:  r.SSHPrograms,
		SSHConfig: os.Getenv("SSH_CONFIG_FILE"), // Colmena uses the same variable
		ClientKey: s.Dir.ClientKey(), MachineOf: machineOf,
	})
	leaveOutAway(ctx, s)
	return s, nil
}

func (s *Session) Close() {
	s.Fleet.Close()
	if s.Lock != nil {
		_ = s.Lock.Unlock() // ignore an error: the end of the process releases the lock, too
	}
}

// survey reads the structure of the hive, and checks its state folder. If the folder contains facts of booted machines and the
// request names no facts, survey passes the facts of the folder to later evaluations. The survey itself gets no facts, because the
// set of nodes and their addresses must not depend on which machines run.
func survey(ctx context.Context, s *Session) error {
	hive, err := s.Eval.Survey(ctx)
	warnAboutModules(s.Eval.Source, hive, s.request.Version, s.Send) // which may be the reason of an error
	if err != nil {
		return err
	}
	s.Hive = hive
	if len(hive.Nodes) > 100 {
		debug.SetGCPercent(30) // half of the memory of a large run would be garbage; this costs a twentieth of its processor time
	}
	if s.Dir, err = state.Locate(s.Eval.Source, hive.ClusterName()); err != nil {
		return err
	}
	if err := s.Dir.Verify(); err != nil {
		return err
	}
	if s.Eval.Facts != "" || len(machine.Booted(hive, hive.Nodes)) == 0 {
		return nil
	}
	switch _, err := facts.Load(s.Dir.Facts()); {
	case err == nil:
		s.Eval.Facts = s.Dir.Facts()
	case !errors.Is(err, fs.ErrNotExist):
		return failure.WithHint(fmt.Errorf("facts: %w", err), "remove the file; nixbench apply writes a new one")
	}
	return nil
}

// Send sends an event to the sink of the request, and records it if a run is recorded.
func (s *Session) Send(e event.Event) {
	if run := s.run.Load(); run != nil {
		run.Record.RecordEvent(e)
	}
	if s.request.Send != nil {
		s.request.Send(e)
	}
}

func (s *Session) State() (*state.State, error) {
	if run := s.run.Load(); run != nil {
		return run.Store.State(), nil
	}
	return s.Dir.Load()
}

func (s *Session) Engines() ([]engine.Engine, error) { return newEngines(s.Dir).Of(s.Hive, s.Fleet) }

// withRecord calls f and records the run, also if f fails, but not if the user has answered a question of f with no.
func (s *Session) withRecord(ctx context.Context, f func(*stages.Deployer) error) error {
	store, err := s.Lock.Store()
	if err != nil {
		return err
	}
	record, err := runs.Record(s.Lock, runs.Run{
		Args: s.request.Args, Hive: s.Eval.Source.String(), Scheduler: s.Hive.Scheduler(), Revision: s.revision(ctx), Nixbench: s.request.Version,
	})
	if err != nil {
		return err
	}
	d := newDeployer(s, store)
	d.Record, d.RunID = record, record.ID()
	for _, r := range s.Away {
		record.RecordResult(r)
	}
	s.run.Store(d)
	err = f(d)
	if failure.KindOf(err) == failure.Declined { // nothing was done, so there is nothing to record
		return errors.Join(err, record.Discard())
	}
	exit, cause := s.request.Describe(err)
	if endErr := record.End(exit, cause); endErr != nil {
		err = errors.Join(err, endErr)
	}
	_ = runs.Prune(s.Lock, runs.Keep) // ignore an error, because the next run also removes old records
	return err
}

// newDeployer returns a Deployer with everything that a session has, for a run that is not recorded.
func newDeployer(s *Session, store *state.Store) *stages.Deployer {
	return &stages.Deployer{
		Changer: node.Changer{
			Fleet: s.Fleet, Store: store, Send: s.Send,
			Copier:   &closure.Copier{Send: s.Send, NixOptions: s.Eval.NixOptions, Substitute: true},
			Uploader: &secrets.Uploader{Send: s.Send, Generated: s.Machines.Vault.Part},
			Activator: &activate.Activator{Send: s.Send, StartMachine: func(ctx context.Context, node string) error {
				return s.Machines.TurnOn(ctx, store.State(), node)
			}},
		},
		Eval: s.Eval, Machines: s.Machines, Keep: s.Machines.Keep, Engines: newEngines(s.Dir),
	}
}

// keepRoots makes garbage collector roots for closures that were built on this computer, by unit of the evaluation.
func keepRoots(ctx context.Context, e *nixeval.Evaluator, dir state.Dir, built map[string]nixeval.Closure) error {
	links := map[string]string{}
	for unit, c := range built {
		links[dir.Root(unit)] = c.Out
	}
	if len(links) == 0 {
		return nil
	}
	if err := dir.Create(); err != nil {
		return err
	}
	if err := e.Keep(ctx, links); err != nil {
		return fmt.Errorf("gcroots: %w", err)
	}
	return nil
}

func (s *Session) revision(ctx context.Context) string {
	if p := s.request.Plan; p.NeedsNoHive() {
		return p.Revision
	}
	return ReadGitRevision(ctx, s.Eval.Source.Dir)
}

// ReadGitRevision returns the revision of the git repository that contains the hive, with the suffix -dirty if the working tree
// has uncommitted changes. It returns an empty string if the hive is not in a git repository.
func ReadGitRevision(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// ModulesFolder is the folder beside hive.nix into which `nixbench init` writes nixbench's NixOS modules.
const ModulesFolder = "modules"

// warnAboutModules compares folders with nixbench's NixOS modules with the modules of this program, and sends a warning for each
// folder that differs: the folder beside the hive, and the folders from which the hive's nodes import modules. version is the
// version of the program. hive is nil if the survey has failed.
func warnAboutModules(source nixeval.Source, hive *nixeval.Hive, version string, send event.Sink) {
	beside := filepath.Join(source.Dir, ModulesFolder)
	var folders []string
	if hive != nil {
		for _, u := range hive.Units {
			if u.Deployment.Modules != nil {
				folders = append(folders, *u.Deployment.Modules)
			}
		}
	}
	if !source.IsFlake() && durable.Exists(filepath.Join(beside, "runtime.nix")) && durable.Exists(filepath.Join(beside, "image.nix")) {
		folders = append(folders, beside)
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		differ, err := modules.Compare(os.DirFS(folder))
		if len(differ) == 0 || errors.Is(err, fs.ErrNotExist) { // some versions of Nix do not write a flake's input into the store
			continue
		}
		advice := "use the nixbench of that folder, or renew the folder; for an input of a flake: nix run .#nixbench, or nix flake update nixbench"
		if folder == beside {
			advice = "nixbench init --update --dir " + source.Dir + " renews them"
		}
		send.Warn("the modules in %s differ from those of this nixbench, %s: %s: %s", folder, version, event.Abbreviate(differ, ", "), advice)
	}
}
