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

	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// app contains the flags, the view and the state that all commands use.
type app struct {
	ctx      context.Context
	started  bool // the command's body has started, so later errors are not usage errors
	view     *ui.View
	viewOnce sync.Once
	sink     event.Sink       // receives events while a run is recorded; if nil, the view receives events
	connect  hypervisorOpener // connects to hypervisors
	dir      state.Dir        // the cluster's state folder; set by the survey

	ongoing   ongoingWork // phases and nodes in progress, shown when Ctrl-C does not end the command at once
	recording atomic.Bool // a run is being recorded: an interrupt must uncordon its nodes and end its record
	paused    atomic.Bool // the command of an engine uses the terminal: an interrupt must wait, so that it can remove its files

	// flags of all commands
	file, flake string
	sets        []string
	nixOptions  []string
	factsFile   string
	showTrace   bool
	impure      bool
	sshPrograms bool
	json        bool
	verbose     bool
	color       string
	evalWorkers int

	evalNodeLimit  string
	specialisation string   // the specialisation that the command activates, or empty
	extraModules   []string // Nix functions that return modules which the nodes have in addition
}

func newApp(ctx context.Context, open hypervisorOpener) *app { return &app{ctx: ctx, connect: open} }

// commandBody is the code of a command. It runs after the view was opened.
type commandBody func(args []string) error

// withView converts a command body to the function that cobra calls.
func (a *app) withView(body commandBody) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		a.started = true
		a.openView()
		return body(args)
	}
}

func (a *app) openView() {
	a.viewOnce.Do(func() {
		a.view = ui.New(ui.Options{Out: os.Stdout, Err: os.Stderr, JSON: a.json, Verbose: a.verbose, Color: a.color})
	})
}

// finish shows err, if it is not nil, closes the view, and returns the exit code for err.
func (a *app) finish(err error) int {
	a.openView()
	code := exitCode(err)
	switch _, programFailed := err.(*enginecmd.ExitError); {
	case err == nil, programFailed: // the program has shown its own error
	case failure.KindOf(err) == failure.Changes && a.json: // the result, which is the last line, has the changes
	case failure.KindOf(err) == failure.Declined, failure.KindOf(err) == failure.Changes:
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: err.Error()})
	default:
		a.view.Problems(code, splitProblems(err))
	}
	if err := a.view.Close(); err != nil && code == exitOK {
		return exitInternal // the result was not written completely: the disk is full, or no process reads the pipe
	}
	return code
}

// newEvaluator returns an evaluator for the hive that the flags name.
func (a *app) newEvaluator() (*nixeval.Evaluator, error) {
	src, err := a.locateHive()
	if err != nil {
		return nil, err
	}
	if a.evalWorkers < 0 {
		return nil, newUsageError("--eval-workers must not be negative (it is %d); 0 means as many as cores and memory allow", a.evalWorkers)
	}
	chunk, err := parseNodeLimit(a.evalNodeLimit)
	if err != nil {
		return nil, err
	}
	o := nixeval.Options{
		Source: src, ShowTrace: a.showTrace, Impure: a.impure, Workers: a.evalWorkers, ChunkSize: chunk,
		Facts: a.factsFile, Specialisation: a.specialisation, ExtraModules: a.extraModules, Send: a.sendEvent,
	}
	for _, s := range a.sets {
		set, err := nixeval.ParseSet(s)
		if err != nil {
			return nil, err
		}
		o.Sets = slices.DeleteFunc(o.Sets, func(s nixeval.Set) bool { return slices.Equal(s.Path, set.Path) }) // the last --set of a path overrides earlier ones
		o.Sets = append(o.Sets, set)
	}
	for _, pair := range a.nixOptions {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, newUsageError("--nix-option needs a name and a value: --nix-option NAME VALUE (got %s)", pair)
		}
		o.NixOptions = append(o.NixOptions, [2]string{name, value})
	}
	if a.factsFile != "" {
		if _, err := facts.Load(a.factsFile); err != nil {
			return nil, newUsageError("--facts: %w", err)
		}
	}
	return nixeval.New(o), nil
}

func (a *app) locateHive() (nixeval.Source, error) {
	switch {
	case a.file != "" && a.flake != "":
		return nixeval.Source{}, newUsageError("-f and --flake select two hives; use one of them")
	case a.file != "":
		return nixeval.ParseFileSource(a.file)
	case a.flake != "":
		return nixeval.ParseFlakeSource(a.flake)
	}
	wd, err := os.Getwd()
	if err != nil {
		return nixeval.Source{}, err
	}
	return nixeval.FindSource(wd)
}

func (a *app) sendEvent(e event.Event) {
	if a.sink != nil {
		a.sink(e)
		return
	}
	a.ongoing.observe(e)
	a.view.Event(e)
}

// loadNodes surveys the hive that the flags name. It returns the evaluator, the hive, and the nodes
// that --on selects.
func (a *app) loadNodes(on []string) (*nixeval.Evaluator, *nixeval.Hive, []nixeval.Node, error) {
	e, err := a.newEvaluator()
	if err != nil {
		return nil, nil, nil, err
	}
	hive, nodes, err := a.selectNodes(e, on)
	return e, hive, nodes, err
}

// surveyHive surveys the hive and sets a.dir. If the state folder contains facts of booted machines
// and --facts is not set, it passes these facts to later evaluations. The survey itself gets no
// facts, because the set of nodes and their addresses must not depend on which machines run.
func (a *app) surveyHive(e *nixeval.Evaluator) (*nixeval.Hive, error) {
	deploy.WarnAboutModules(e.Source, nil, readBuildVersion().Version, a.sendEvent)
	hive, err := e.Survey(a.ctx)
	if err != nil {
		return nil, err
	}
	deploy.WarnAboutModules(e.Source, hive, readBuildVersion().Version, a.sendEvent)
	dir, err := a.locateState(e, hive)
	if err != nil {
		return nil, err
	}
	if err := a.verifyState(dir); err != nil {
		return nil, err
	}
	a.dir = dir
	if e.Facts == "" && slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool { return machine.Boots(hive, n) }) {
		if _, err := facts.Load(dir.Facts()); err == nil {
			e.Facts = dir.Facts()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, failure.WithHint(fmt.Errorf("facts: %w", err), "remove the file; nixbench apply writes a new one")
		}
	}
	return hive, nil
}

// verifyState checks the state folder before any of its files is used. It sends a warning for each
// file that other users can access.
func (a *app) verifyState(dir state.Dir) error {
	loose, err := dir.Verify()
	for _, l := range loose {
		a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(), Text: l.String()})
	}
	return err
}

// addFacts passes the facts of booted machines to the evaluator, for commands that do not survey
// the hive. addFacts itself surveys the hive only if a file with facts exists.
func (a *app) addFacts(e *nixeval.Evaluator) error {
	any, err := state.Locate(e.Source, "*")
	if err != nil {
		return err
	}
	if found, _ := filepath.Glob(any.Facts()); len(found) == 0 || e.Facts != "" {
		return nil
	}
	_, err = a.surveyHive(e)
	return err
}

// selectNodes surveys the hive and returns the nodes that --on selects.
func (a *app) selectNodes(e *nixeval.Evaluator, on []string) (*nixeval.Hive, []nixeval.Node, error) {
	on, err := readSelection(a.ctx, on)
	if err != nil {
		return nil, nil, err
	}
	selector, err := selection.ParseSelector(on)
	if err != nil {
		return nil, nil, err
	}
	hive, err := a.surveyHive(e)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := selector.Select(hive)
	if err != nil && len(hive.Nodes) == 0 {
		if recorded, _ := a.dir.Load(); recorded != nil && len(recorded.Machines) > 0 {
			err = failure.WithHint(err, "nixbench destroy removes the machines of its former nodes")
		}
	}
	return hive, nodes, err
}

func (a *app) locateState(e *nixeval.Evaluator, hive *nixeval.Hive) (state.Dir, error) {
	return state.Locate(e.Source, hive.ClusterName())
}

// warnIfRenamed warns if the hive's cluster has no machines, and the hive was used for a cluster with another name that has.
func (a *app) warnIfRenamed(e *nixeval.Evaluator, hive *nixeval.Hive) {
	for _, other := range runs.FormerNames(a.dir, e.Source.String()) {
		a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(), Text: fmt.Sprintf(
			"the cluster %s has no machines, and %s is the state of another cluster of this hive that has; if meta.name was changed, set it to %q again to use or destroy that cluster's machines: nixbench apply does not rename them",
			hive.ClusterName(), other, filepath.Base(string(other)))})
	}
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// expandFileFlag converts the short flag -f before the command to --file, because some commands use -f for another flag,
// and the flag library parses all flags with those of the command.
func expandFileFlag(root *cobra.Command, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' || arg == "--" { // the command
			return append(out, args[i:]...)
		}
		value, isFile := strings.CutPrefix(arg, "-f")
		switch {
		case isFile && value != "":
			out = append(out, "--file="+strings.TrimPrefix(value, "="))
		case isFile && i+1 < len(args):
			i++
			out = append(out, "--file="+args[i])
		default:
			out = append(out, arg)
			if f := root.PersistentFlags().Lookup(strings.TrimPrefix(arg, "--")); f != nil && f.NoOptDefVal == "" && i+1 < len(args) {
				i++
				out = append(out, args[i]) // the value of the flag
			}
		}
	}
	return out
}

// joinNixOptions converts `--nix-option NAME VALUE`, the syntax of Colmena and of Nix's own
// --option, to the single argument that the flag library supports.
func joinNixOptions(args []string) []string {
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
