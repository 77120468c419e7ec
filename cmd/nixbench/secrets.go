package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
)

func (a *app) secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Show the secrets that nixbench made, or make one anew",
		Long: `List the secrets that nixbench has made for deployment.keys.NAME.generated: what kind
they are of, how old, and when they end. What they say is never shown; they are in
secrets/generated of the state folder.`,
		Example: `  nixbench secrets
  nixbench secrets rotate join-token && nixbench apply`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.runs(func([]string) error { return a.listSecrets() })
	rotate := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Make a token or random secret anew",
		Long: `Make a secret anew. The next apply brings it to the nodes. Only tokens and random
secrets can be made anew: what an authority has signed would be worth nothing.`,
		Example: "  nixbench secrets rotate join-token && nixbench apply",
		Args:    cobra.ExactArgs(1),
	}
	rotate.RunE = a.runs(func(args []string) error { return a.rotateSecret(args[0]) })
	cmd.AddCommand(rotate)
	return cmd
}

func (a *app) stateOfHive() (state.Dir, error) {
	e, err := a.evaluator()
	if err != nil {
		return "", err
	}
	hive, err := e.Survey(a.ctx)
	if err != nil {
		return "", err
	}
	return a.state(e, hive)
}

func (a *app) listSecrets() error {
	dir, err := a.stateOfHive()
	if err != nil {
		return err
	}
	list, err := vault.Open(dir.Vault()).List()
	if err != nil {
		return err
	}
	a.view.Result(list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no secret has been made yet; apply makes those that the hive names")
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

func (a *app) rotateSecret(name string) error {
	dir, err := a.stateOfHive()
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self("secrets rotate"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := vault.Open(dir.Vault()).Rotate(name); err != nil {
		return usagef("%w", err)
	}
	a.view.Result(map[string]string{"rotated": name}, func(w io.Writer) {
		fmt.Fprintf(w, "%s is a new one; nixbench apply brings it to the nodes\n", name)
	})
	return nil
}
