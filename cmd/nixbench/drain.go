package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
)

// drainFlags are the flags that configure how members of a running cluster are drained.
type drainFlags struct {
	noDrain bool
	allow   map[string]*bool // flag of an engine, such as drain-bare-pods → whether it is set
}

const noDrainHelp = "change nodes of a running cluster without a drain"

// add defines the drain flags in set. The argument noDrain is the help text of --no-drain.
func (f *drainFlags) add(set *pflag.FlagSet, noDrain string) {
	set.BoolVar(&f.noDrain, "no-drain", false, noDrain)
	f.allow = map[string]*bool{}
	for _, k := range deploy.EngineKinds() {
		for _, o := range k.DrainOptions {
			f.allow[o.Flag] = set.Bool(o.Flag, false, o.Help)
		}
	}
}

// names returns the names of the drain flags that the cluster engines define, such as drain-bare-pods.
func (f *drainFlags) names() []string { return slices.Sorted(maps.Keys(f.allow)) }

// allowed returns the names of those flags of the cluster engines that the user has set.
func (f *drainFlags) allowed() []string {
	return slices.DeleteFunc(f.names(), func(name string) bool { return !*f.allow[name] })
}

func (f *drainFlags) toOptions() (engine.DrainOptions, error) {
	allowed := f.allowed()
	if f.noDrain && len(allowed) > 0 {
		return engine.DrainOptions{}, failure.NewUsage("--no-drain excludes --%s, because nothing is drained", strings.Join(f.names(), " and --"))
	}
	return engine.DrainOptions{Allowed: allowed}, nil
}

// writeDrains prints what the drain of each node would delete permanently, and what blocks this drain.
func writeDrains(w io.Writer, previews []stages.Preview) {
	for _, p := range previews {
		if p.Drain == nil {
			continue
		}
		if len(p.Drain.Blocked) > 0 {
			fmt.Fprintf(w, "\n%s: the drain would be refused:\n", p.Node)
			writeDrainItems(w, p.Drain.Blocked)
		}
		if len(p.Drain.Deleted) > 0 {
			fmt.Fprintf(w, "\n%s: the drain would delete:\n", p.Node)
			writeDrainItems(w, p.Drain.Deleted)
		}
	}
}

func writeDrainItems(w io.Writer, items []engine.DrainItem) {
	var rows []ui.Row
	for _, item := range items {
		rows = append(rows, ui.Row{"  " + item.Work, item.Reason})
	}
	ui.List(w, rows)
}
