package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/failure"
)

// hostKeysCommand returns the command that prints the host keys of machines before their first boot, so that secrets
// can be encrypted to them.
func hostKeysCommand(a *app) *cobra.Command {
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
	cmd.RunE = a.withView(func([]string) error { return showHostKeys(a) })
	return cmd
}

func showHostKeys(a *app) error {
	s, err := a.openLocked("secrets host-keys")
	if err != nil {
		return err
	}
	defer s.Close()
	public, err := s.MakeHostKeys()
	if err != nil {
		return err
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
