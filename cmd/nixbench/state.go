package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/archive"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

func stateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Export the state and secrets of the cluster, or import them",
		Long: `Export the state folder of the cluster to an encrypted file, and import it on
another computer: the records of nodes and machines, the generated secrets,
SSH keys and host keys. docs/recipes.md describes how a team uses this.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(stateExportCommand(a), stateImportCommand(a))
	return cmd
}

// passphraseFlags are the flags about a passphrase of the commands `state export` and `state import`.
type passphraseFlags struct {
	ask  bool
	file string
}

func (f *passphraseFlags) add(cmd *cobra.Command, use string) {
	cmd.Flags().BoolVar(&f.ask, "passphrase", false, "ask on the terminal for the passphrase that "+use)
	cmd.Flags().StringVar(&f.file, "passphrase-file", "", "`FILE` whose first line is the passphrase that "+use)
	cmd.MarkFlagsMutuallyExclusive("passphrase", "passphrase-file")
}

func (f passphraseFlags) isSet() bool { return f.ask || f.file != "" }

func stateExportCommand(a *app) *cobra.Command {
	var (
		pass       passphraseFlags
		recipients []string
		files      []string
		runs       bool
	)
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the state and secrets of the cluster to an encrypted file",
		Long: `Write the state folder of the cluster to FILE, encrypted with age
(https://age-encryption.org). Recipients are public keys of age or SSH; the
owner of each private key can import the file, and so controls the cluster.

FILE is replaced if it exists and is encrypted with age. Not exported: images,
sweeps of bench, and roots of the garbage collector.`,
		Example: `  nixbench state export cluster.age --recipient "$(cat ~/.ssh/id_ed25519.pub)"
  nixbench state export cluster.age --recipients-file team.txt`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(recipients)+len(files) > 0 == pass.isSet() {
			return failure.NewUsage("state export: either recipients (--recipient, --recipients-file) or a passphrase (--passphrase, --passphrase-file) is required, and not both")
		}
		passphrase, err := pass.read(a, args[0], true)
		if err != nil {
			return err
		}
		to, err := archive.Recipients(recipients, files, passphrase)
		if err != nil {
			return err
		}
		return withStateLock(a, "state export", func(lock *state.Lock, cluster string) error {
			r, err := archive.Export(a.ctx, lock, cluster, args[0], runs, to)
			if err != nil {
				return err
			}
			a.view.Result(r, func(w io.Writer) {
				fmt.Fprintf(w, "exported the state of %s to %s: %s\n", cluster, args[0], countFiles(r))
			})
			return nil
		})
	})
	f := cmd.Flags()
	f.StringArrayVar(&recipients, "recipient", nil, "encrypt to this public `KEY`: age1…, ssh-ed25519 … or ssh-rsa …; repeatable")
	f.StringArrayVar(&files, "recipients-file", nil, "encrypt to the public keys in `FILE`, one per line; repeatable")
	f.BoolVar(&runs, "runs", false, "export the records of runs, too")
	pass.add(cmd, "encrypts the file")
	return cmd
}

func stateImportCommand(a *app) *cobra.Command {
	var (
		pass  passphraseFlags
		files []string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the state and secrets of the cluster by an export",
		Long: `Decrypt FILE, which nixbench state export has written, and replace the state
folder of the cluster by its content. If the state here has changed since it was
last exported or imported, and FILE lacks the changes, nothing is replaced
unless --force is set.

age does not prove who has encrypted a file: import only files that come from
your team.`,
		Example: `  nixbench state import cluster.age --identity ~/.ssh/id_ed25519
  nixbench state import cluster.age --identity key.txt --force`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(files) == 0 && !pass.isSet() {
			return failure.NewUsage("state import: --identity, --passphrase or --passphrase-file is required")
		}
		passphrase, err := pass.read(a, args[0], false)
		if err != nil {
			return err
		}
		identities, err := archive.Identities(files, passphrase, a.askSecret)
		if err != nil {
			return err
		}
		return withStateLock(a, "state import", func(lock *state.Lock, cluster string) error {
			r, err := archive.Import(a.ctx, lock, cluster, args[0], force, identities)
			if err != nil {
				return err
			}
			a.view.Result(r, func(w io.Writer) {
				if r.Changed {
					fmt.Fprintf(w, "imported the state of %s that %s exported on %s: %s\n", cluster, r.By, r.Exported.Local().Format("2006-01-02 15:04"), countFiles(r))
				} else {
					fmt.Fprintf(w, "nothing changed: the state of %s is that of %s\n", cluster, args[0])
				}
			})
			return nil
		})
	})
	cmd.Flags().StringArrayVar(&files, "identity", nil, "decrypt with the private key in `FILE`: identities of age, or a private key of SSH; repeatable")
	cmd.Flags().BoolVar(&force, "force", false, "replace the state even if it has changes that FILE lacks")
	pass.add(cmd, "decrypts the file")
	return cmd
}

// withStateLock takes the lock of the cluster's state, and calls f with the lock.
func withStateLock(a *app, command string, f func(lock *state.Lock, cluster string) error) error {
	s, err := a.openLocked(command)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s.Lock, s.Hive.ClusterName())
}

func countFiles(r *archive.Result) string {
	text := fmt.Sprintf("%d files", r.Files)
	if r.Records > 0 {
		text += fmt.Sprintf(", and %d files of records of runs", r.Records)
	}
	return text
}

// read returns the passphrase of an exported state. It reads the passphrase from a file or asks for it on the terminal, twice if
// it is new. It returns "" if no flag is set.
func (f passphraseFlags) read(a *app, export string, isNew bool) (string, error) {
	if f.file != "" {
		return archive.ReadPassphrase(f.file)
	}
	if !f.ask {
		return "", nil
	}
	secret, err := a.askSecret("passphrase of " + export)
	if err == nil && isNew {
		var again []byte
		if again, err = a.askSecret("the same passphrase again"); err == nil && string(again) != string(secret) {
			err = failure.NewUsage("the two passphrases differ; nothing was exported")
		}
	}
	if err == nil && len(secret) == 0 {
		err = failure.NewUsage("the passphrase is empty")
	}
	return string(secret), err
}

// askSecret asks for a secret on the terminal, without echo.
func (a *app) askSecret(question string) ([]byte, error) {
	prompt := newPrompt(a)
	if prompt == nil {
		return nil, failure.WithHint(failure.NewUsage("this needs the %s and stdin is not a terminal; pass --passphrase-file", question), "--passphrase-file reads the passphrase from a file")
	}
	return prompt(a.ctx, question)
}
