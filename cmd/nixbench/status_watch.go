package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// watchStatus shows the status again and again, until the user interrupts it. The connections to the nodes stay open.
func (a *app) watchStatus(e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, flags statusFlags) error {
	conns := a.openFleet(hive, flags.fleetFlags, currentState{a.dir})
	defer conns.Close()
	screen := term.IsTerminal(int(os.Stdout.Fd()))
	for first := true; ; first = false {
		s, err := a.observeStatus(e, hive, conns, nodes, flags)
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		if s == nil {
			return err
		}
		notes := s.notes
		if err != nil {
			notes = append(notes, err.Error())
		}
		if screen && !a.json {
			a.view.ClearScreen()
		}
		a.view.Result(s.rows, func(w io.Writer) {
			if !first && !screen { // between two tables
				fmt.Fprintln(w)
			}
			writeStatus(w, s.rows, flags.wide(), notes...)
		})
		if a.view.Err() != nil {
			return nil // finish reports it
		}
		for _, row := range s.rows { // its machine may be created again, with another address and another host key
			if row.System == inspect.Unreachable {
				conns.Drop(row.Node)
			}
		}
		select {
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case <-time.After(flags.watch):
		}
	}
}

// currentState reads the state for each new connection, because other runs change it.
type currentState struct{ dir state.Dir }

func (c currentState) MachineOf(node string) (state.Machine, *state.Cluster, error) {
	s, err := c.dir.Load()
	if err != nil {
		return state.Machine{}, nil, err
	}
	return s.MachineOf(node)
}
