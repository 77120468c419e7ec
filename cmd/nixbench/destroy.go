package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machines"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/selection"
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

A network or an image that another machine uses is left. Then destroy names that machine and
ends with exit code 5, and the cluster keeps its id: the next destroy removes the rest, or the next
apply uses it. A copy of a machine, as virt-clone makes one, is never removed.

With --on, a member of a living cluster is taken out of it before: drained, and a control
plane also out of etcd. One that does not answer any more is taken out by the others. --no-drain leaves
its pods to their fate, and where the cluster does not answer it goes without being taken out.

A node that the hive still has is booted again by the next apply.

With --forget-hypervisor, machines are given up that are on a hypervisor which is gone
for good and which the hive no longer names: nobody is asked there and nothing is
removed, their addresses are free, and the next apply makes them elsewhere. Members
are taken out of a living cluster as with --on. It says what is left there.`

type destroyFlags struct {
	on       []string
	forget   string
	parallel int
	yes      bool
	drain    drainFlags
}

func (a *app) destroyCommand() *cobra.Command {
	var flags destroyFlags
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "Remove the machines that nixbench has booted",
		Long:  destroyLong,
		Example: `  nixbench destroy
  nixbench destroy --on worker-3 && nixbench apply
  nixbench destroy --forget-hypervisor rack2 && nixbench apply
  nixbench destroy --yes`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.destroy(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&flags.on, "on", nil, onHelp)
	f.StringVar(&flags.forget, "forget-hypervisor", "", "give up the machines on the hypervisor of this `NAME`, which is gone for good")
	f.IntVar(&flags.parallel, "parallel", 10, "remove at most `N` machines at once; 0: all")
	flags.drain.add(f, "take nodes out of a living cluster without moving their work away before; also where it does not answer")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) destroy(flags destroyFlags) error {
	if flags.parallel < 0 {
		return usagef("--parallel %d: expected a number from 1, or 0 for all at once", flags.parallel)
	}
	if flags.forget != "" && len(flags.on) > 0 {
		return usagef("--forget-hypervisor is about all machines that were there: it takes no --on")
	}
	drain, err := flags.drain.options()
	if err != nil {
		return err
	}
	selector, err := selection.ParseSelector(flags.on)
	if err != nil {
		return err
	}
	e, err := a.newEvaluator()
	if err != nil {
		return err
	}
	hive, err := a.surveyHive(e)
	if err != nil {
		return err
	}
	recorded, err := a.dir.Load()
	if err != nil {
		return err
	}
	if recorded.Cluster == nil {
		a.view.Result([]state.NodeResult{}, func(w io.Writer) { fmt.Fprintln(w, "nixbench has booted no machine of this cluster") })
		return nil
	}
	if err := checkForget(flags.forget, hive, recorded); err != nil {
		return err
	}
	return a.runRecorded(e, hive, "destroy", func(s *session) error {
		d := &deploy.Deployer{
			Store: s.store, Record: s.record, Send: s.send, Machines: a.newMachines(e, hive, s.send),
			Engines: engines, Fleet: a.newFleet(hive, fleetFlags{}, s.store),
		}
		defer d.Fleet.Close()
		var selectMachines func([]nixeval.Node) ([]nixeval.Node, error)
		if len(flags.on) > 0 {
			selectMachines = func(machines []nixeval.Node) ([]nixeval.Node, error) {
				return selector.Select(&nixeval.Hive{Nodes: machines})
			}
		}
		destroyPlan, err := planDestroy(a, d.Machines, s.store.State(), selectMachines, flags.forget)
		if err != nil {
			return err
		}
		defer destroyPlan.Close()
		if list := destroyPlan.Lines(); len(destroyPlan.Removals) > 0 {
			question := fmt.Sprintf("remove %s, and all that is on their disks?", fleet.Count(len(destroyPlan.Removals), "machine"))
			if flags.forget != "" {
				question = fmt.Sprintf("forget %s, without removing anything there?", fleet.Count(len(destroyPlan.Removals), "machine"))
			}
			if err := a.confirmList("destroy", question, list, flags.yes); err != nil {
				return err
			}
		}
		results, err := d.Destroy(a.ctx, destroyPlan, deploy.DestroyOptions{Parallel: flags.parallel, WithoutDrain: flags.drain.noDrain, Drain: drain})
		if results != nil {
			a.view.Result(results, func(w io.Writer) { // the text output has already shown each machine's result
				for _, line := range destroyPlan.Remaining {
					fmt.Fprintln(w, line)
				}
				if err == nil && destroyPlan.WholeCluster && len(destroyPlan.Removals) == 0 {
					fmt.Fprintln(w, "what was left of this cluster is removed")
				}
			})
		}
		return err
	})
}

func planDestroy(a *app, m *machines.Manager, recorded *state.State, selectMachines func([]nixeval.Node) ([]nixeval.Node, error), forget string) (*machines.DestroyPlan, error) {
	if forget != "" {
		return m.PlanAbandon(recorded, forget), nil
	}
	return m.PlanDestroy(a.ctx, recorded, selectMachines)
}

// checkForget validates --forget-hypervisor. The hypervisor must have machines of the cluster, and
// the hive must not name it any more, because the next apply would otherwise connect to it.
func checkForget(name string, hive *nixeval.Hive, recorded *state.State) error {
	if name == "" {
		return nil
	}
	if _, ok := recorded.Cluster.Hypervisors[name]; !ok {
		return &hintedError{usagef("--forget-hypervisor %s: nixbench has made nothing there", name),
			"it has on " + strings.Join(slices.Sorted(maps.Keys(recorded.Cluster.Hypervisors)), ", ")}
	}
	if hive.Cluster != nil && len(hive.Nodes) > 0 {
		if _, named := hive.Cluster.Hypervisors[name]; named {
			return &hintedError{usagef("--forget-hypervisor %s: the hive still names it", name), "take it out of cluster.hypervisors first"}
		}
	}
	return nil
}
