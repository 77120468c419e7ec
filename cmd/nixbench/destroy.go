package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const destroyLong = `Remove the machines that nixbench has booted, with all data on their disks. With
the last machine, also remove the network, the images, the keys and the facts.
Only objects with the mark of this cluster are removed, also those of roles that
the hive no longer contains. The named nodes of the hive are not removed.

It shows the list and asks; without a terminal it requires --yes. The next
destroy finishes an interrupted one.

If another machine uses a network or an image, destroy names that machine and
ends with exit code 5.

With --on, a member of a running cluster is first drained and removed from the
cluster. The next apply creates the nodes again that the hive contains.

With --forget-hypervisor, the machines on a hypervisor that is permanently lost
are abandoned: nixbench does not connect to it, and the next apply creates the
machines on another hypervisor. The command lists what remains there.`

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
		Long:  withEngineHelp(destroyLong, func(h engine.Help) string { return h.Remove }),
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
	f.StringVar(&flags.forget, "forget-hypervisor", "", "abandon the machines on the hypervisor `NAME`, which is permanently lost")
	f.IntVar(&flags.parallel, "parallel", 10, "remove at most `N` machines at once; 0: all")
	flags.drain.add(f, "remove nodes from a running cluster without a drain, also if the cluster does not answer")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) destroy(flags destroyFlags) error {
	if flags.parallel < 0 {
		return newUsageError("--parallel must not be negative (it is %d); 0 means all at once", flags.parallel)
	}
	if flags.forget != "" && len(flags.on) > 0 {
		return newUsageError("--forget-hypervisor abandons all machines of a hypervisor, so it excludes --on")
	}
	drain, err := flags.drain.toOptions()
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
		a.warnIfRenamed(e, hive)
		a.view.Result([]state.NodeResult{}, func(w io.Writer) { fmt.Fprintln(w, "nixbench has booted no machine of this cluster") })
		return nil
	}
	if err := checkForgetHypervisor(flags.forget, hive, recorded); err != nil {
		return err
	}
	return a.runRecorded(e, hive, "destroy", func(s *session) error {
		d := &deploy.Deployer{
			Store: s.store, Record: s.record, Send: s.send, Machines: a.newMachines(e, hive, s.send),
			Engines: a.engines(), Fleet: a.newFleet(hive, fleetFlags{}, s.store),
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
			question := fmt.Sprintf("remove %s, with all data on their disks?", fleet.Count(len(destroyPlan.Removals), "machine"))
			if flags.forget != "" {
				question = fmt.Sprintf("abandon %s, without removing anything on the hypervisor?", fleet.Count(len(destroyPlan.Removals), "machine"))
			}
			if err := a.askAboutList("destroy", question, list, flags.yes); err != nil {
				return err
			}
		}
		results, err := d.Destroy(a.ctx, destroyPlan, deploy.DestroyOptions{Parallel: flags.parallel, WithoutDrain: flags.drain.noDrain, Drain: drain})
		if results != nil {
			a.view.Result(results, func(w io.Writer) { // write no results of machines as text, because the view has already shown them
				for _, line := range destroyPlan.Remaining {
					fmt.Fprintln(w, line)
				}
				if err == nil && destroyPlan.WholeCluster && len(destroyPlan.Removals) == 0 {
					fmt.Fprintln(w, "the remaining networks, images and keys of this cluster are removed")
				}
			})
		}
		return err
	})
}

func planDestroy(a *app, m *machine.Manager, recorded *state.State, selectMachines func([]nixeval.Node) ([]nixeval.Node, error), forget string) (*machine.DestroyPlan, error) {
	if forget != "" {
		return m.PlanAbandon(recorded, forget), nil
	}
	return m.PlanDestroy(a.ctx, recorded, selectMachines)
}

// checkForgetHypervisor validates --forget-hypervisor. The recorded cluster must have objects on
// the hypervisor, and the hive must not contain the hypervisor, because the next apply would
// connect to it.
func checkForgetHypervisor(name string, hive *nixeval.Hive, recorded *state.State) error {
	if name == "" {
		return nil
	}
	if _, ok := recorded.Cluster.Hypervisors[name]; !ok {
		return failure.WithHint(newUsageError("--forget-hypervisor %s: nixbench has created nothing on it", name),
			"this cluster has objects on "+strings.Join(slices.Sorted(maps.Keys(recorded.Cluster.Hypervisors)), ", "))

	}
	if hive.Cluster != nil && len(hive.Nodes) > 0 {
		if _, named := hive.Cluster.Hypervisors[name]; named {
			return failure.WithHint(newUsageError("--forget-hypervisor %s: the hive still contains it", name), "remove it from cluster.hypervisors first")
		}
	}
	return nil
}
