package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/archive"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/nixeval"
)

func stateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Export the state and secrets of the cluster, or import them",
		Long: `Export the state folder of the cluster to an encrypted file, and import it on
another computer: the records of nodes and machines, the generated secrets,
SSH keys and host keys. docs/recipes.md describes how a team uses this.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(stateExportCommand(a), stateImportCommand(a))
	return cmd
}

func stateExportCommand(a *app) *cobra.Command {
	var recipients, files []string
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the state and secrets of the cluster to an encrypted file",
		Long: `Write the state folder of the cluster to FILE, encrypted with age
(https://age-encryption.org). Recipients are public keys of age or SSH; the
owner of each private key can import the file, and so controls the cluster.

FILE is replaced if it exists and is encrypted with age. Not exported: images,
records of runs, sweeps of bench, and roots of the garbage collector.`,
		Example: `  nixbench state export cluster.age --recipient "$(cat ~/.ssh/id_ed25519.pub)"`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		to, err := archive.Recipients(recipients, files)
		if err != nil {
			return err
		}
		return a.inSession(fleetFlags{}, onNodes("state export", deploy.NoNodes), func(s *deploy.Session) error {
			r, err := archive.Export(s.Lock, s.Hive.ClusterName(), args[0], to)
			if err == nil {
				a.view.Result(r, func(w io.Writer) {
					fmt.Fprintf(w, "exported the state of %s to %s: %d files\n", s.Hive.ClusterName(), args[0], r.Files)
				})
			}
			return err
		})
	})
	f := cmd.Flags()
	f.StringArrayVar(&recipients, "recipient", nil, "encrypt to this public `KEY`: age1…, ssh-ed25519 … or ssh-rsa …; repeatable")
	f.StringArrayVar(&files, "recipients-file", nil, "encrypt to the public keys in `FILE`, one per line; repeatable")
	return cmd
}

func stateImportCommand(a *app) *cobra.Command {
	var files []string
	var force bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the state and secrets of the cluster by an export",
		Long: `Decrypt FILE, which nixbench state export has written, and replace the state
folder of the cluster by its content. If the state here has changed since it was
last exported or imported, nothing is replaced unless --force is set.

age does not prove who has encrypted a file: import only files that come from
your team.`,
		Example: `  nixbench state import cluster.age --identity ~/.ssh/id_ed25519`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(files) == 0 {
			return failure.NewUsage("state import: --identity is required")
		}
		identities, err := archive.Identities(files, a.askSecret)
		if err != nil {
			return err
		}
		return a.inSession(fleetFlags{}, onNodes("state import", deploy.NoNodes), func(s *deploy.Session) error {
			cluster := s.Hive.ClusterName()
			r, err := archive.Import(s.Lock, cluster, args[0], force, identities)
			if err == nil {
				a.view.Result(r, func(w io.Writer) {
					if r.Changed {
						fmt.Fprintf(w, "imported the state of %s that %s exported on %s: %d files\n", cluster, r.By, r.Exported.Local().Format("2006-01-02 15:04"), r.Files)
					} else {
						fmt.Fprintf(w, "nothing changed: the state of %s is that of %s\n", cluster, args[0])
					}
				})
			}
			return err
		})
	})
	cmd.Flags().StringArrayVar(&files, "identity", nil, "decrypt with the private key in `FILE`: identities of age, or a private key of SSH; repeatable")
	cmd.Flags().BoolVar(&force, "force", false, "replace the state even if it has changed since it was last exported or imported")
	return cmd
}

func secretsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "List generated secrets, or rotate one",
		Long: `List the secrets that nixbench has generated for deployment.keys.NAME.generated:
kind, age and expiry. Their values are never shown; they are in
secrets/generated of the state folder.`,
		Example: `  nixbench secrets rotate NAME && nixbench apply`,
	}
	cmd.RunE = a.withSession("", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, _ []string) error {
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
	})
	cmd.AddCommand(rotateCommand(a), hostKeysCommand(a))
	return cmd
}

func rotateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate NAME",
		Short: "Rotate a token, a random secret or a key ring",
		Long: withEngineHelp(`Generate a new value for a secret. The next apply uploads it to the nodes.
Tokens, random secrets and key rings can be rotated, authorities and key pairs
cannot.

The keys of a key ring encrypt stored data, so its rotation has two steps: the
first rotate adds a key, which apply uploads; the second one makes it the active
key from the next apply on. Old keys are kept, so that old data can be read.`, func(h engine.Help) string { return h.Rotate }),
		Example: `  nixbench secrets rotate KEY-RING && nixbench apply    # twice`,
		Args:    cobra.ExactArgs(1),
		RunE: a.withSession("secrets rotate", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, args []string) error {
			step, err := s.RotateSecret(a.ctx, args[0])
			if err != nil {
				return err
			}
			text := map[vault.Step]string{
				vault.Renewed: "has a new value; nixbench apply uploads it to the nodes",
				vault.Added:   "has a new key, which is not used yet; nixbench apply uploads it to the nodes, and another rotate then makes it the active key",
				vault.Turned:  "uses its new key from the next nixbench apply on; stored data stay encrypted with the old key until they are rewritten",
			}[step]
			a.view.Result(map[string]string{"rotated": args[0], "step": string(step)}, func(w io.Writer) { fmt.Fprintln(w, args[0]+" "+text) })
			return nil
		}),
	}
}

func hostKeysCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "host-keys",
		Short: "Print the public host keys of machines, also before they exist",
		Long: `Print the public SSH host keys of the machines of roles, in the format of
known_hosts. Missing keys are generated, so secrets of sops-nix or agenix can be
encrypted to the machines before the first apply (docs/recipes.md).`,
		Example: `  nixbench secrets host-keys | ssh-to-age`,
		RunE: a.withSession("secrets host-keys", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, _ []string) error {
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
				for _, name := range nixeval.SortedNames(public) {
					fmt.Fprintf(w, "%s %s\n", name, public[name])
				}
			})
			return nil
		}),
	}
}
