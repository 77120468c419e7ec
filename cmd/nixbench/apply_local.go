package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/nixeval"
)

func applyLocalCommand(a *app) *cobra.Command {
	flags := applyFlags{noBuildThere: true}
	var name string
	var sudo bool
	cmd := &cobra.Command{
		Use:   "apply-local [GOAL]",
		Short: "Switch the machine that this runs on",
		Long: `Evaluate and build the system of this machine, and switch to it, like nixbench
apply. The node is the one whose name is the host name of this machine, or
--node. It must have deployment.allowLocalDeployment = true. It needs root.

The armed rollback detects a switch that fails or hangs, but not a switch after
which other machines cannot log in.`,
		ValidArgs: applyGoals,
		Example:   `  nixbench apply-local --sudo boot --node laptop`,
		Args:      cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		goal, err := parseGoal(args)
		if err != nil {
			return err
		}
		return runApplyLocal(a, goal, flags, name, sudo)
	})
	f := cmd.Flags()
	f.StringVar(&name, "node", "", "this machine is the node `NAME` of the hive")
	f.BoolVar(&sudo, "sudo", false, "evaluate and build as the current user, and run the other commands with deployment.privilegeEscalationCommand")
	flags.addArming(f, rollbackHelp, []string{"node", "off"})
	f.StringVar(&flags.options.Specialisation, "specialisation", "", "switch to this specialisation of the system")
	f.BoolVar(&flags.options.ReplaceUnknown, "force-replace-unknown-profiles", false, "replace a system that was not deployed from this hive, regardless of deployment.replaceUnknownProfiles")
	f.BoolVar(&flags.options.WithoutKeys, "no-keys", false, "do not install deployment.keys")
	return cmd
}

// runApplyLocal deploys this computer, or only builds its system. name is its node; empty: the node with its host name.
func runApplyLocal(a *app, goal node.Goal, flags applyFlags, name string, sudo bool) error {
	options, err := flags.toOptions(goal)
	if err != nil {
		return err
	}
	onlyBuild := goal == "build" || goal == "push"
	var escalation []string
	set := func(r *deploy.Request) {
		r.Command, r.Eval.Specialisation = "apply-local", options.Specialisation
		r.Pick = func(hive *nixeval.Hive) (nixeval.Node, error) {
			n, err := findLocalNode(hive, name)
			if err != nil || onlyBuild {
				return n, err
			}
			if _, err := os.Stat("/etc/NIXOS"); errors.Is(err, fs.ErrNotExist) {
				return n, activate.NewNotNixOSError(n.Name)
			}
			if os.Geteuid() == 0 {
				return n, nil
			}
			if !sudo {
				return n, failure.WithHint(failure.NewUsage("apply-local: switching needs root"), "--sudo evaluates and builds as the current user, and switches as root")
			}
			escalation = hive.Unit(n.Unit).Deployment.PrivilegeEscalationCommand
			return n, nil
		}
	}
	if onlyBuild {
		return runBuild(a, fleetFlags{}, set, false, false, "")
	}
	return a.inSession(fleetFlags{}, set, func(s *deploy.Session) error {
		return s.ApplyLocal(a.ctx, escalation, options)
	})
}

// findLocalNode returns the hive's node for this computer, if the hive allows a local deployment of the node. It is the node
// called name. If name is empty, it is the node whose name is the host name of this computer, with or without the domain.
func findLocalNode(hive *nixeval.Hive, name string) (nixeval.Node, error) {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nixeval.Node{}, err
		}
		short, _, _ := strings.Cut(host, ".")
		for _, n := range hive.Nodes {
			if n.Name == host || n.Name == short && name == "" {
				name = n.Name
			}
		}
		if name == "" {
			return nixeval.Node{}, failure.WithHint(failure.NewUsage("apply-local: the host name of this machine is %s, and the hive has no node with this name", host), fmt.Sprintf("--node selects the node; the hive has %d", len(hive.Nodes)))
		}
	}
	n, err := deploy.NodeNamed(name)(hive)
	if err == nil && !hive.Unit(n.Unit).Deployment.AllowLocalDeployment {
		err = failure.WithHint(failure.NewUsage("%s: deployment.allowLocalDeployment is false", n.Name), "to deploy this machine, set it to true for "+n.Name)
	}
	return n, err
}
