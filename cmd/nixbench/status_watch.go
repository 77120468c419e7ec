package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/inspect"
)

// watchStatus shows the status again and again, until the user interrupts it. The connections to the nodes stay open.
func watchStatus(a *app, s *deploy.Session, flags statusFlags) error {
	screen := term.IsTerminal(int(os.Stdout.Fd()))
	for first := true; ; first = false {
		status, err := s.Status(a.ctx, deploy.StatusOptions{Figures: flags.wide(), Quiet: true})
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		if status == nil {
			return err
		}
		notes := status.Notes
		if err != nil {
			notes = append(notes, err.Error())
		}
		if screen && !a.json {
			a.view.ClearScreen()
		}
		showStatus(a, status, flags.wide(), notes, !first && !screen)
		if a.view.Err() != nil {
			return nil // finish reports it
		}
		for _, row := range status.Rows { // connect to an unreachable node again, because its machine may be created again, with another address and another host key
			if row.System == inspect.Unreachable {
				s.Fleet.Drop(row.Node)
			}
		}
		select {
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case <-time.After(flags.watch):
		}
	}
}
