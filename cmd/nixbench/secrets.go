package main

import (
	"errors"
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
		Short: "Show the secrets that nixbench made, or make one anew",
		Long: `List the secrets that nixbench has made for deployment.keys.NAME.generated: what kind
they are of, how old, and when they end. What they say is never shown; they are in
secrets/generated of the state folder.`,
		Example: `  nixbench secrets
  nixbench secrets rotate join-token && nixbench apply`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.listSecrets() })
	rotate := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Make a token, a random secret or the key of a key ring anew",
		Long: `Make a secret anew. The next apply brings it to the nodes. Tokens, random secrets and
key rings can be made anew, but not authorities and key pairs: what they have signed would be
worth nothing.

With a key ring something is stored encrypted, as Kubernetes does its Secrets, and whoever
shares that storage must know a new key before anybody uses it. So it takes two steps: the first
rotate adds a key, which apply brings to all; the second has it used from the next apply on. Of
kubernetes-encryption it is refused as long as a control plane does not have the key; of other
rings nixbench cannot tell. Old keys stay, to read with.`,
		Example: `  nixbench secrets rotate join-token && nixbench apply
  nixbench secrets rotate kubernetes-encryption && nixbench apply    # twice`,
		Args: cobra.ExactArgs(1),
	}
	rotate.RunE = a.withView(func(args []string) error { return a.rotateSecret(args[0]) })
	cmd.AddCommand(rotate)
	return cmd
}

func (a *app) surveyState() (state.Dir, *nixeval.Hive, error) {
	e, err := a.newEvaluator()
	if err != nil {
		return "", nil, err
	}
	hive, err := a.surveyHive(e)
	return a.dir, hive, err
}

func (a *app) listSecrets() error {
	dir, _, err := a.surveyState()
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
	dir, hive, err := a.surveyState()
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self("secrets rotate"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	step, err := vault.Open(dir.Vault()).Rotate(name, func(sum string) error { return a.checkKeyDistributed(hive, name, sum) })
	if refused := new(vault.RefusedError); errors.As(err, &refused) {
		return usagef("%w", err)
	}
	if err != nil {
		return err
	}
	text := map[vault.Step]string{
		vault.Renewed: "is a new one; nixbench apply brings it to the nodes",
		vault.Added:   "has a new key, which nobody uses yet; nixbench apply brings it to the nodes, and then another rotate has them use it",
		vault.Turned:  "is used with its new key from the next nixbench apply on; what is stored stays encrypted with the old one until it is written anew",
	}[step]
	a.view.Result(map[string]string{"rotated": name, "step": string(step)}, func(w io.Writer) { fmt.Fprintln(w, name+" "+text) })
	return nil
}

// checkKeyDistributed returns an error unless all nodes that share encrypted data run with the
// given version of a key ring. sum is the checksum of the key ring.
func (a *app) checkKeyDistributed(hive *nixeval.Hive, name, sum string) error {
	if len(hive.Broken) > 0 { // these units may be among those that share the data
		return &nixeval.EvalError{Units: hive.Broken}
	}
	fleet := a.newFleet(hive, fleetFlags{})
	defer fleet.Close()
	clusterEngines, err := engines.Of(hive, fleet)
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
			return &newKeyError{fmt.Errorf("%s: it is not known who has its new key: %w", name, err), "once the cluster answers, run it again"}
		}
		if len(without) > 0 {
			return &newKeyError{fmt.Errorf("%s: its new key is not used yet, since not all run with it: %s", name, strings.Join(without, ", ")),
				"nixbench apply brings it there; then run this again"}
		}
	}
	return nil
}

// newKeyError means that a new key cannot be used yet.
type newKeyError struct {
	err  error
	hint string
}

func (e *newKeyError) Error() string { return e.err.Error() }

// Kind implements [failure.Classified].
func (e *newKeyError) Kind() failure.Kind { return failure.Cluster }
func (e *newKeyError) Unwrap() error      { return e.err }
func (e *newKeyError) Hint() string       { return e.hint }
