package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/nixeval"
)

const applyLocalLong = `Evaluate and build the system of this machine, and switch to it, like nixbench
apply. The node is the one whose name is the host name of this machine, or
--node. It must have deployment.allowLocalDeployment = true.

It needs root. With --sudo it evaluates and builds as the current user, and runs
the other commands with deployment.privilegeEscalationCommand.

The armed rollback detects a switch that fails or hangs, but not a switch after
which other machines cannot log in.`

type localFlags struct {
	node string
	sudo bool
	armFlags
	specialisation string
	replaceUnknown bool
	noKeys         bool
}

func (a *app) applyLocalCommand() *cobra.Command {
	var flags localFlags
	cmd := &cobra.Command{
		Use:       "apply-local [GOAL]",
		Short:     "Switch the machine that this runs on",
		Long:      applyLocalLong,
		ValidArgs: []string{"switch", "boot", "test", "dry-activate", "build", "push", "upload-keys", "keys"},
		Example: `  nixbench apply-local --sudo
  nixbench apply-local --sudo boot --node laptop`,
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
	}
	cmd.RunE = a.withView(func(args []string) error {
		goal := node.Switch
		if len(args) == 1 {
			goal = node.Goal(args[0])
		}
		return a.applyLocal(goal, flags)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&flags.node, "node", "", "this machine is the node `NAME` of the hive")
	f.BoolVar(&flags.sudo, "sudo", false, "become root when necessary, with deployment.privilegeEscalationCommand")
	flags.addArming(f)
	f.StringVar(&flags.specialisation, "specialisation", "", "switch to this specialisation of the system")
	f.BoolVar(&flags.replaceUnknown, "force-replace-unknown-profiles", false, "replace a system that was not deployed from this hive, regardless of deployment.replaceUnknownProfiles")
	f.BoolVar(&flags.noKeys, "no-keys", false, "do not install deployment.keys")
	return cmd
}

func (a *app) applyLocal(goal node.Goal, flags localFlags) error {
	if err := checkLocalSystem(runtime.GOOS); err != nil {
		return err
	}
	applyOptions := applyFlags{
		armFlags: flags.armFlags, specialisation: flags.specialisation,
		replaceUnknown: flags.replaceUnknown, noKeys: flags.noKeys, noBuildThere: true,
	}
	o, err := applyOptions.toOptions(goal)
	if err != nil {
		return err
	}
	a.specialisation = flags.specialisation
	e, err := a.newEvaluator()
	if err != nil {
		return err
	}
	hive, err := a.surveyHive(e)
	if err != nil {
		return err
	}
	node, err := findLocalNode(hive, flags.node)
	if err != nil {
		return err
	}
	if o.UsesKeys() {
		hive = hive.WithKeys([]nixeval.Node{node})
	}
	d := hive.Unit(node.Unit).Deployment
	if !d.AllowLocalDeployment {
		return failure.WithHint(newUsageError("%s: deployment.allowLocalDeployment is false", node.Name), "to deploy this machine, set it to true for "+node.Name)
	}
	if goal == "build" || goal == "push" {
		return a.buildOnly(e, hive, []nixeval.Node{node}, false, false)
	}
	if _, err := os.Stat("/etc/NIXOS"); errors.Is(err, fs.ErrNotExist) {
		return &activate.NotNixOSError{Node: node.Name}
	}
	var escalation []string
	if os.Geteuid() != 0 {
		if !flags.sudo {
			return failure.WithHint(newUsageError("apply-local: switching needs root"), "--sudo evaluates and builds as the current user, and switches as root")
		}
		escalation = d.PrivilegeEscalationCommand
	}
	conns, err := fleet.NewLocal(hive, node, escalation, remote.Options{Prompt: a.newPrompt(), Send: a.sendEvent})
	if err != nil {
		return err
	}
	defer conns.Close()
	return a.runRecorded(e, hive, "apply-local", func(s *session) error {
		d := &deploy.Deployer{
			Eval: s.eval, Fleet: conns,
			Copier:    &closure.Copier{Send: s.send, NixOptions: e.NixOptions},
			Uploader:  &secrets.Uploader{Send: s.send},
			Activator: &activate.Activator{Send: s.send},
			Store:     s.store, Record: s.record, Send: s.send,
			Keep: func(built map[string]nixeval.Closure) error { return a.registerRoots(e, hive, built) },
		}
		return d.Apply(a.ctx, hive, []nixeval.Node{node}, o)
	})
}

// checkLocalSystem returns an error for operating systems that have no NixOS.
func checkLocalSystem(goos string) error {
	if goos == "linux" {
		return nil
	}
	return failure.WithHint(newUsageError("apply-local: switching this machine needs Linux, and this machine runs %s", goos),
		"nixbench apply deploys to other machines, and nixbench build only builds")
}

// findLocalNode returns the hive's node for this machine. This is the node called name, or if name
// is empty, the node with the host name of this machine, with or without its domain.
func findLocalNode(hive *nixeval.Hive, name string) (nixeval.Node, error) {
	if name != "" {
		return findNode(hive, name)
	}
	host, err := os.Hostname()
	if err != nil {
		return nixeval.Node{}, err
	}
	short, _, _ := strings.Cut(host, ".")
	for _, candidate := range []string{host, short} {
		for _, n := range hive.Nodes {
			if n.Name == candidate {
				return findNode(hive, candidate)
			}
		}
	}
	return nixeval.Node{}, failure.WithHint(newUsageError("apply-local: the host name of this machine is %s, and the hive has no node with this name", host), fmt.Sprintf("--node selects the node; the hive has %d", len(hive.Nodes)))
}
