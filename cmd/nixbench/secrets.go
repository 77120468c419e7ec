package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
)

func secretsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "List generated secrets, or rotate one",
		Long: `List the secrets that nixbench has generated for deployment.keys.NAME.generated:
kind, age and expiry. Their values are never shown; they are in
secrets/generated of the state folder.`,
		Example: `  nixbench secrets
  nixbench secrets rotate NAME && nixbench apply`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return listSecrets(a) })
	rotate := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Rotate a token, a random secret or a key ring",
		Long: withEngineHelp(`Generate a new value for a secret. The next apply uploads it to the nodes.
Tokens, random secrets and key rings can be rotated, authorities and key pairs
cannot.

The keys of a key ring encrypt stored data, so its rotation has two steps: the
first rotate adds a key, which apply uploads; the second one makes it the active
key from the next apply on. Old keys are kept, so that old data can be read.`, func(h engine.Help) string { return h.Rotate }),
		Example: `  nixbench secrets rotate NAME && nixbench apply
  nixbench secrets rotate KEY-RING && nixbench apply    # twice`,
		Args: cobra.ExactArgs(1),
	}
	rotate.RunE = a.withView(func(args []string) error { return rotateSecret(a, args[0]) })
	cmd.AddCommand(rotate, hostKeysCommand(a))
	return cmd
}

func listSecrets(a *app) error {
	s, err := a.openNodes(fleetFlags{}, deploy.NoNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := s.Machines.Vault.List()
	if err != nil {
		return err
	}
	a.view.Result(list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "there are no generated secrets yet; apply generates those of the hive")
			return
		}
		table := []ui.Row{{"SECRET", "KIND", "MADE", "ENDS"}}
		for _, s := range list {
			ends := "-"
			if s.Expires != nil {
				ends = s.Expires.Format(time.DateOnly)
			}
			table = append(table, ui.Row{s.Name, s.Kind, s.Made.Local().Format(time.DateTime), ends})
		}
		ui.Table(w, table)
	})
	return nil
}

func rotateSecret(a *app, name string) error {
	s, err := a.openLocked("secrets rotate")
	if err != nil {
		return err
	}
	defer s.Close()
	step, err := s.RotateSecret(a.ctx, name)
	if err != nil {
		return err
	}
	text := map[vault.Step]string{
		vault.Renewed: "has a new value; nixbench apply uploads it to the nodes",
		vault.Added:   "has a new key, which is not used yet; nixbench apply uploads it to the nodes, and another rotate then makes it the active key",
		vault.Turned:  "uses its new key from the next nixbench apply on; stored data stay encrypted with the old key until they are rewritten",
	}[step]
	a.view.Result(map[string]string{"rotated": name, "step": string(step)}, func(w io.Writer) { fmt.Fprintln(w, name+" "+text) })
	return nil
}

// hostKeysCommand returns the command that prints the SSH host keys of machines before the machines boot for the first time. So
// the user can encrypt secrets for these machines.
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
	recorded, err := s.State()
	if err != nil {
		return err
	}
	public, err := s.Machines.MakeHostKeys(recorded)
	if err != nil {
		return err
	}
	if len(public) == 0 {
		return failure.WithHint(failure.NewUsage("the hive has no roles, so nixbench creates no machines and no host keys"), "ssh-keyscan HOST prints the keys of an existing machine")
	}
	a.view.Result(public, func(w io.Writer) {
		for _, name := range sortedNames(public) {
			fmt.Fprintf(w, "%s %s\n", name, public[name])
		}
	})
	return nil
}
