package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

func (a *app) secretsCommand() *cobra.Command {
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
	cmd.RunE = a.withView(func([]string) error { return a.listSecrets() })
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
	rotate.RunE = a.withView(func(args []string) error { return a.rotateSecret(args[0]) })
	cmd.AddCommand(rotate, a.hostKeysCommand())
	return cmd
}

// surveyForState surveys the hive that the flags name, and returns the hive and its state folder.
func (a *app) surveyForState() (state.Dir, *nixeval.Hive, error) {
	e, err := a.newEvaluator()
	if err != nil {
		return "", nil, err
	}
	hive, err := a.surveyHive(e)
	return a.dir, hive, err
}

func (a *app) listSecrets() error {
	dir, _, err := a.surveyForState()
	if err != nil {
		return err
	}
	list, err := vault.Open(dir.Vault()).List()
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

func (a *app) rotateSecret(name string) error {
	dir, hive, err := a.surveyForState()
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self("secrets rotate"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	step, err := vault.Open(dir.Vault()).Rotate(name, func(sum string) error { return a.checkKeyDistributed(hive, name, sum) })
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

// checkKeyDistributed returns an error unless all nodes that share encrypted data use the new
// version of the key ring called name. sum is the checksum of the new version.
func (a *app) checkKeyDistributed(hive *nixeval.Hive, name, sum string) error {
	if len(hive.Broken) > 0 { // units that cannot be evaluated may have nodes that need the new version, too
		return &nixeval.EvalError{Units: hive.Broken}
	}
	conns := a.newFleet(hive, fleetFlags{}, nil)
	defer conns.Close()
	clusterEngines, err := a.engines().Of(hive, conns)
	if err != nil {
		return err
	}
	for _, e := range clusterEngines {
		holder, ok := e.(engine.Keyholder)
		if !ok {
			continue
		}
		without, err := holder.MembersWithout(a.ctx, name, sum)
		if err != nil {
			return &keyNotReadyError{fmt.Errorf("%s: cannot determine which nodes have its new key: %w", name, err), "run it again when the cluster answers"}
		}
		if len(without) > 0 {
			return &keyNotReadyError{fmt.Errorf("%s: its new key cannot be activated, because these nodes do not run with it: %s", name, strings.Join(without, ", ")),
				"run nixbench apply, which uploads it, then run this again"}
		}
	}
	return nil
}

// keyNotReadyError means that the new key of a key ring cannot be activated yet.
type keyNotReadyError struct {
	err  error
	hint string
}

func (e *keyNotReadyError) Error() string { return e.err.Error() }

// Kind implements [failure.Classified].
func (e *keyNotReadyError) Kind() failure.Kind { return failure.Cluster }
func (e *keyNotReadyError) Unwrap() error      { return e.err }
func (e *keyNotReadyError) Hint() string       { return e.hint }
