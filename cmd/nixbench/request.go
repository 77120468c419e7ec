package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/nixeval"
)

// hypervisorOpener returns a function that opens hypervisors. An opened hypervisor sends its events to send.
type hypervisorOpener func(send event.Sink) machine.Opener

// fleetFlags are the flags of commands that connect to nodes.
type fleetFlags struct {
	on        []string
	parallel  int
	acceptNew bool
}

func (f *fleetFlags) add(set *pflag.FlagSet) { f.addWithParallel(set, 10) }

// addWithParallel defines the flags. parallel is the default of --parallel.
func (f *fleetFlags) addWithParallel(set *pflag.FlagSet, parallel int) {
	set.StringArrayVar(&f.on, "on", nil, onHelp)
	set.IntVarP(&f.parallel, "parallel", "p", parallel, "work on at most `N` nodes at once; 0: on all")
	set.BoolVar(&f.acceptNew, "accept-new-host-keys", false, "accept and store the keys of hosts that known_hosts does not contain")
}

// newRequest makes a request of the global flags, and of f, a command's flags about nodes.
func (a *app) newRequest(f fleetFlags) (deploy.Request, error) {
	r := deploy.Request{
		File: a.file, Flake: a.flake, Parallel: f.parallel, AcceptNewHostKeys: f.acceptNew, SSHPrograms: a.sshPrograms,
		Prompt: newPrompt(a), Hypervisors: a.connect, Send: a.showEvent, Args: os.Args[1:], Version: readBuildVersion().Version,
		Describe: func(err error) (int, error) {
			err = a.preferCause(err)
			return exitCode(err), describeForRecord(err)
		},
		Eval: nixeval.Options{ShowTrace: a.showTrace, Impure: a.impure, Workers: a.evalWorkers, Facts: a.factsFile},
	}
	if a.evalWorkers < 0 {
		return r, failure.NewUsage("--eval-workers must not be negative (it is %d); 0 means as many as cores and memory allow", a.evalWorkers)
	}
	var err error
	if r.Eval.ChunkSize, err = parseNodeLimit(a.evalNodeLimit); err != nil {
		return r, err
	}
	if r.Eval.Sets, err = nixeval.ParseSets(a.sets); err != nil {
		return r, err
	}
	for _, pair := range a.nixOptions {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return r, failure.NewUsage("--nix-option needs a name and a value: --nix-option NAME VALUE (got %s)", pair)
		}
		r.Eval.NixOptions = append(r.Eval.NixOptions, [2]string{name, value})
	}
	r.On, err = readSelection(a.ctx, f.on)
	return r, err
}

// open opens the session of a command. From then on, the session receives the command's events. set changes the request before.
func (a *app) open(f fleetFlags, set func(*deploy.Request)) (*deploy.Session, error) {
	r, err := a.newRequest(f)
	if err != nil {
		return nil, err
	}
	set(&r)
	s, err := deploy.Open(a.ctx, r)
	if err != nil {
		return nil, err
	}
	a.sink = s.Send
	if s.Lock != nil {
		a.recording.Store(true)
	}
	return s, nil
}

// openNodes opens the session of a command that only reads. filter says which of the selected nodes the command uses.
func (a *app) openNodes(f fleetFlags, filter deploy.NodeFilter) (*deploy.Session, error) {
	return a.open(f, func(r *deploy.Request) { r.Nodes = filter })
}

// openNode opens the session of a command that only reads, for the node with this name.
func (a *app) openNode(name string, f fleetFlags) (*deploy.Session, error) {
	return a.open(f, func(r *deploy.Request) { r.Pick = deploy.NodeNamed(name) })
}

// openLocked opens the session of a command that changes the state folder. The session holds the lock of the cluster.
func (a *app) openLocked(command string) (*deploy.Session, error) {
	return a.open(fleetFlags{}, func(r *deploy.Request) { r.Command = command })
}
