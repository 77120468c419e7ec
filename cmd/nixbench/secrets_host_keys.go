package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
)

// hostKeysCommand returns the command that prints the host keys of machines before their first boot, so that secrets
// can be encrypted to them.
func (a *app) hostKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host-keys",
		Short: "Print the public host keys of machines, also before they exist",
		Long: `Print the public SSH host keys of the machines of roles, in the format of
known_hosts. Missing keys are generated, so secrets of sops-nix or agenix can be
encrypted to the machines before the first apply (docs/recipes.md).`,
		Example: `  nixbench secrets host-keys
  nixbench secrets host-keys | ssh-to-age`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.showHostKeys() })
	return cmd
}

func (a *app) showHostKeys() error {
	dir, hive, err := a.surveyForState()
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self("secrets host-keys"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	recorded, err := dir.Load()
	if err != nil {
		return err
	}
	public := map[string]string{}
	for _, n := range hive.Nodes {
		if n.Role == "" {
			continue // not created by nixbench
		}
		if public[n.Name] = recorded.Machines[n.Name].HostKey; public[n.Name] == "" {
			key, err := keys.MakeHostKey(dir, n.Name)
			if err != nil {
				return err
			}
			public[n.Name] = key.Public
		}
	}
	if len(public) == 0 {
		return failure.WithHint(newUsageError("the hive has no roles, so nixbench creates no machines and no host keys"), "ssh-keyscan HOST prints the keys of an existing machine")
	}
	a.view.Result(public, func(w io.Writer) {
		for _, name := range sortedNames(public) {
			fmt.Fprintf(w, "%s %s\n", name, public[name])
		}
	})
	return nil
}
