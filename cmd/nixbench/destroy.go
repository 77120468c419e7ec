package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const destroyLong = `Remove the machines that nixbench has booted, with all that is on their disks; and
when none is left, the network and images, their keys, and the facts. Only what
carries this cluster's mark is touched. Named nodes of the hive are machines that
exist: they are not meant.

It removes what there is, whatever the hive says by now: also machines of roles
that it no longer has, and what a run that was cut off has left behind. It shows
the list and asks; where there is no terminal to ask on, it wants --yes. One that
was cut off is finished by the next.

With --on, a member of a living cluster is taken out of it before: drained, and a control
plane also out of etcd. One that does not answer any more is taken out by the others. --no-drain leaves
its pods to their fate, and where the cluster does not answer it goes without being taken out.

A node that the hive still has is booted again by the next apply.`

type destroyFlags struct {
	on       []string
	parallel int
	yes      bool
	noDrain  bool
}

func (a *app) destroyCommand() *cobra.Command {
	var flags destroyFlags
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "Remove the machines that nixbench has booted",
		Long:  destroyLong,
		Example: `  nixbench destroy
  nixbench destroy --on worker-3 && nixbench apply
  nixbench destroy --yes`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.runs(func([]string) error { return a.destroy(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&flags.on, "on", nil, onHelp)
	f.IntVar(&flags.parallel, "parallel", 10, "remove at most `N` machines at once; 0: all")
	f.BoolVar(&flags.noDrain, "no-drain", false, "take nodes out of a living cluster without moving their work away before; also where it does not answer")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) destroy(flags destroyFlags) error {
	if flags.parallel < 0 {
		return usagef("--parallel %d: expected a number from 1, or 0 for all at once", flags.parallel)
	}
	selector, err := plan.ParseSelector(flags.on)
	if err != nil {
		return err
	}
	e, err := a.evaluator()
	if err != nil {
		return err
	}
	hive, err := a.survey(e)
	if err != nil {
		return err
	}
	known, err := a.dir.Load()
	if err != nil {
		return err
	}
	if known.Cluster == nil {
		a.view.Result([]state.NodeResult{}, func(w io.Writer) { fmt.Fprintln(w, "nixbench has booted no machine of this cluster") })
		return nil
	}
	return a.recorded(e, hive, "destroy", func(s *session) error {
		d := &deploy.Deployer{
			Store: s.store, Record: s.record, Send: s.send, Machines: a.machines(e, hive, s.send),
			Engines: engines, Fleet: a.fleet(hive, fleetFlags{}),
		}
		defer d.Fleet.Close()
		var meant func([]nixeval.Node) ([]nixeval.Node, error)
		if len(flags.on) > 0 {
			meant = func(machines []nixeval.Node) ([]nixeval.Node, error) {
				return selector.Select(&nixeval.Hive{Nodes: machines})
			}
		}
		doom, err := d.Machines.Doom(a.ctx, s.store.State(), meant)
		if err != nil {
			return err
		}
		defer doom.Close()
		if list := doom.Lines(); len(list) > 0 {
			question := fmt.Sprintf("remove %s, and all that is on their disks?", deploy.Count(len(list), "machine"))
			if err := a.agreed("destroy", question, list, flags.yes); err != nil {
				return err
			}
		}
		results, err := d.Destroy(a.ctx, doom, deploy.DestroyOptions{Parallel: flags.parallel, WithoutDrain: flags.noDrain})
		if results != nil {
			a.view.Result(results, func(io.Writer) {}) // people have seen the lines
		}
		return err
	})
}
