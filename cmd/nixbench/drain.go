package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
)

// drainFlags configure how members of a running cluster are drained.
type drainFlags struct {
	noDrain, barePods, localData bool
}

const noDrainHelp = "change nodes of a running cluster without a drain"

// add defines the drain flags in set. noDrain is the help text of --no-drain.
func (f *drainFlags) add(set *pflag.FlagSet, noDrain string) {
	set.BoolVar(&f.noDrain, "no-drain", false, noDrain)
	set.BoolVar(&f.barePods, "drain-bare-pods", false, "let a drain delete pods that no controller recreates on another node")
	set.BoolVar(&f.localData, "drain-local-data", false, "let a drain delete data that pods keep on the node in emptyDir volumes")
}

func (f *drainFlags) toOptions() (engine.DrainOptions, error) {
	if f.noDrain && (f.barePods || f.localData) {
		return engine.DrainOptions{}, newUsageError("--no-drain excludes --drain-bare-pods and --drain-local-data, because nothing is drained")
	}
	return engine.DrainOptions{BarePods: f.barePods, LocalData: f.localData}, nil
}

// writeDrains prints what each drain would delete permanently, and what blocks it.
func writeDrains(w io.Writer, previews []deploy.Preview) {
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
