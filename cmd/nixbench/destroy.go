package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/selection"
)

func destroyCommand(a *app) *cobra.Command {
	var flags rollingFlags
	var forget string
	var yes bool
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "Remove the machines that nixbench has booted",
		Long: withEngineHelp(`Remove the machines that nixbench has booted, with all data on their disks. With
the last machine, also remove the network, the images, the keys and the facts.
Only objects with the mark of this cluster are removed, also those of roles that
the hive no longer contains. The named nodes of the hive are not removed.

It shows the list and asks; without a terminal it requires --yes. With --on, a
member of a running cluster is first drained and removed from the cluster.`, func(h engine.Help) string { return h.Remove }),
		Example: `  nixbench destroy --on worker-3 && nixbench apply
  nixbench destroy --forget-hypervisor rack2 && nixbench apply`,
	}
	cmd.RunE = a.withView(func([]string) error { return runDestroy(a, flags, forget, yes) })
	f := cmd.Flags()
	f.StringArrayVar(&flags.on, "on", nil, onHelp)
	f.StringVar(&forget, "forget-hypervisor", "", "abandon the machines on the hypervisor `NAME`, which is permanently lost: list what remains there; the next apply creates them on another hypervisor")
	f.IntVar(&flags.parallel, "parallel", 10, "remove at most `N` machines at once; 0: all")
	flags.addDrain(f, "remove nodes from a running cluster without a drain, also if the cluster does not answer")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func runDestroy(a *app, flags rollingFlags, forget string, yes bool) error {
	if forget != "" && len(flags.on) > 0 {
		return failure.NewUsage("--forget-hypervisor abandons all machines of a hypervisor, so it excludes --on")
	}
	options, err := flags.toOptions()
	if err != nil {
		return err
	}
	selector, err := selection.ParseSelector(flags.on)
	if err != nil {
		return err
	}
	return a.inSession(fleetFlags{}, onNodes("destroy", deploy.NoNodes), func(s *deploy.Session) error {
		done, results, err := s.Destroy(a.ctx, deploy.DestroyRequest{
			Options: options, Machines: selector, Forget: forget,
			Ask: func(p *machine.DestroyPlan) error {
				question := "remove %s, with all data on their disks?"
				if forget != "" {
					question = "abandon %s, without removing anything on the hypervisor?"
				}
				return a.askAboutList("destroy", fmt.Sprintf(question, event.Count(len(p.Removals), "machine")), p.Lines(), yes)
			},
		})
		if results == nil {
			return err
		}
		a.view.Result(results, func(w io.Writer) { // no results of machines as text, because the view has already shown them
			if done == nil {
				fmt.Fprintf(w, "nixbench has booted no machine of cluster %s\n", s.Hive.ClusterName())
				for _, other := range s.Dir.OthersWithMachines() {
					fmt.Fprintf(w, "cluster %[1]s of this hive has machines; --set cluster.name=%[1]s selects it\n", other)
				}
				return
			}
			for _, line := range done.Remaining {
				fmt.Fprintln(w, line)
			}
			if err == nil && done.WholeCluster && len(done.Removals) == 0 {
				fmt.Fprintln(w, "the remaining networks, images and keys of this cluster are removed")
			}
		})
		return err
	})
}
