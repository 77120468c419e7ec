package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// app is what the commands share: flags that all of them take, and the view.
type app struct {
	ctx     context.Context
	started bool // whether a command's own code runs
	view    *ui.View
	opening sync.Once
	sink    event.Sink // where events go once a run is recorded; nil: to the view
	connect opener     // to hypervisors
	dir     state.Dir  // of the cluster, once the hive is known

	underway  underway    // for Ctrl-C
	recording atomic.Bool // a run is recorded: it may have nodes to give back, and its record has to be ended

	// flags
	file, flake string
	sets        []string
	nixOptions  []string
	factsFile   string
	showTrace   bool
	impure      bool
	json        bool
	verbose     bool
	evalWorkers int
}

func newApp(ctx context.Context, open opener) *app { return &app{ctx: ctx, connect: open} }

// command is the body of a command: it runs with the view open.
type command func(args []string) error

// runs makes cobra's hook of a body.
func (a *app) runs(body command) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		a.started = true
		a.open()
		return body(args)
	}
}

func (a *app) open() {
	a.opening.Do(func() {
		a.view = ui.New(ui.Options{Out: os.Stdout, Err: os.Stderr, JSON: a.json, Verbose: a.verbose})
	})
}

// finish shows the error, if there is one, and gives the exit code.
func (a *app) finish(err error) int {
	a.open()
	code := exitCode(err)
	if err != nil {
		a.view.Problems(code, problems(err))
	}
	if err := a.view.Close(); err != nil && code == exitOK {
		return exitInternal // a full disk, or a pipe that nobody reads
	}
	return code
}

// evaluator is for the hive that the flags name.
func (a *app) evaluator() (*nixeval.Evaluator, error) {
	src, err := a.source()
	if err != nil {
		return nil, err
	}
	if a.evalWorkers < 0 {
		return nil, usagef("--eval-workers %d: expected a number from 1, or 0 for what the machine bears", a.evalWorkers)
	}
	o := nixeval.Options{
		Source: src, ShowTrace: a.showTrace, Impure: a.impure, Workers: a.evalWorkers,
		Facts: a.factsFile, Send: a.event,
	}
	for _, s := range a.sets {
		set, err := nixeval.ParseSet(s)
		if err != nil {
			return nil, err
		}
		o.Sets = slices.DeleteFunc(o.Sets, func(s nixeval.Set) bool { return slices.Equal(s.Path, set.Path) }) // the last one counts
		o.Sets = append(o.Sets, set)
	}
	for _, pair := range a.nixOptions {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--nix-option %s: write --nix-option NAME VALUE", pair)
		}
		o.NixOptions = append(o.NixOptions, [2]string{name, value})
	}
	if a.factsFile != "" {
		if _, err := facts.Load(a.factsFile); err != nil {
			return nil, usagef("--facts: %w", err)
		}
	}
	return nixeval.New(o), nil
}

func (a *app) source() (nixeval.Source, error) {
	switch {
	case a.file != "" && a.flake != "":
		return nixeval.Source{}, usagef("-f and --flake name two hives; keep one of them")
	case a.file != "":
		return nixeval.FileSource(a.file)
	case a.flake != "":
		return nixeval.FlakeSource(a.flake)
	}
	wd, err := os.Getwd()
	if err != nil {
		return nixeval.Source{}, err
	}
	return nixeval.FindSource(wd)
}

func (a *app) event(e event.Event) {
	if a.sink != nil {
		a.sink(e)
		return
	}
	a.underway.see(e)
	a.view.Event(e)
}

// nodes are those of the flags' hive that --on means: where most commands begin.
func (a *app) nodes(on []string) (*nixeval.Evaluator, *nixeval.Hive, []nixeval.Node, error) {
	e, err := a.evaluator()
	if err != nil {
		return nil, nil, nil, err
	}
	hive, nodes, err := a.selected(e, on)
	return e, hive, nodes, err
}

// survey reads the hive. What is evaluated after it sees the facts of the machines that
// we have booted, if there are some and --facts names no others. The survey itself does
// not: which nodes there are, and where, must not depend on whether they run.
func (a *app) survey(e *nixeval.Evaluator) (*nixeval.Hive, error) {
	hive, err := e.Survey(a.ctx)
	if err != nil {
		return nil, err
	}
	dir, err := a.state(e, hive)
	if err != nil {
		return nil, err
	}
	if err := a.verify(dir); err != nil {
		return nil, err
	}
	a.dir = dir
	if e.Facts == "" && slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool { return deploy.Boots(hive, n) }) {
		if _, err := facts.Load(dir.Facts()); err == nil {
			e.Facts = dir.Facts()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, &hinted{fmt.Errorf("facts: %w", err), "nixbench apply writes them anew, once the file is gone"}
		}
	}
	return hive, nil
}

// verify checks the state folder before anything in it is used, and warns of what was open to
// other users.
func (a *app) verify(dir state.Dir) error {
	loose, err := dir.Verify()
	for _, l := range loose {
		a.event(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(), Text: l.String()})
	}
	return err
}

// withFacts is for what needs no survey: it makes one only where there may be facts.
func (a *app) withFacts(e *nixeval.Evaluator) error {
	any, err := state.Locate(e.Source, "*")
	if err != nil {
		return err
	}
	if found, _ := filepath.Glob(any.Facts()); len(found) == 0 || e.Facts != "" {
		return nil
	}
	_, err = a.survey(e)
	return err
}

// selected surveys the hive and picks the nodes that --on means.
func (a *app) selected(e *nixeval.Evaluator, on []string) (*nixeval.Hive, []nixeval.Node, error) {
	selector, err := plan.ParseSelector(on)
	if err != nil {
		return nil, nil, err
	}
	hive, err := a.survey(e)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := selector.Select(hive)
	if err != nil && len(hive.Nodes) == 0 {
		if known, _ := a.dir.Load(); known != nil && len(known.Machines) > 0 {
			err = &hinted{err, "nixbench destroy removes the machines that it had"}
		}
	}
	return hive, nodes, err
}

func (a *app) state(e *nixeval.Evaluator, hive *nixeval.Hive) (state.Dir, error) {
	return state.Locate(e.Source, hive.ClusterName())
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// joinPairs turns `--nix-option NAME VALUE`, as Colmena has it and Nix's own
// --option does, into the one argument that the flag library can take.
func joinPairs(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--nix-option" && i+2 < len(args) && !strings.Contains(args[i+1], "=") {
			out = append(out, "--nix-option="+args[i+1]+"="+args[i+2])
			i += 2
			continue
		}
		out = append(out, args[i])
	}
	return out
}
