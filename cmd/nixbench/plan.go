package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

func planCommand(a *app) *cobra.Command {
	var flags rollingFlags
	var exitCode bool
	var out string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long: `Show what nixbench apply would do, node by node: whether the system changes,
what has to be copied, whether the new kernel needs a reboot, which of
deployment.keys differ, and how the machine of the node changes. Nothing is
written on the nodes.

Below the table are the packages that differ from those of the running system (+
added, ~ changed, - removed) and, if the running system is in the local store,
the systemd units and the files of /etc. Then follow the order in which nodes
change, and a summary. It fails if apply would refuse the change.

nixbench apply dry-activate shows which systemd units a switch would restart.

With --exit-code, the exit code is 11 if apply would change anything, and 9 if
the cluster does not answer. --out writes the plan to a file that nixbench apply
FILE executes. It contains no secrets.`,
		Example: `  nixbench plan
  nixbench plan --on @web
  nixbench plan --out web.plan && nixbench apply web.plan
  nixbench plan --json | tail -n 1 | jq '.result[] | {node, action}'`,
	}
	cmd.RunE = a.withView(func([]string) error {
		options, err := flags.toOptions()
		if err != nil {
			return err
		}
		if err := checkPlanFile(a, out, options.KeepGoing); err != nil {
			return err
		}
		return a.inSession(flags.fleetFlags, onNodes("", deploy.DeployedNodes), func(s *deploy.Session) error {
			made, err := s.Plan(a.ctx, options, out, stages.PlanArguments{
				Sets: append([]string{}, a.sets...), NoKeys: options.WithoutKeys, Recreate: options.Recreate,
				NoDrain: options.WithoutDrain, DrainAllowed: append([]string{}, options.Drain.Allowed...), MaxUnavailable: flags.maxUnavailable, SkipUnreachable: flags.skipUnreachable,
			})
			if made.Nodes != nil {
				a.view.Result(made.Nodes, func(w io.Writer) { writePreviews(w, made.Nodes) })
			}
			switch {
			case err != nil || !exitCode:
			case made.Unknown != nil:
				err = made.Unknown
			case made.Changes():
				err = errChanges
			}
			return err
		})
	})
	f := cmd.Flags()
	flags.add(f)
	f.BoolVar(&flags.options.WithoutKeys, "no-keys", false, "do not compare deployment.keys")
	f.BoolVar(&flags.options.Recreate, "recreate", false, "show the plan of apply --recreate")
	f.BoolVar(&flags.options.KeepGoing, "keep-going", false, "show the other nodes if some cannot be evaluated or built")
	f.BoolVar(&exitCode, "exit-code", false, "exit with 11 if apply would change anything")
	f.StringVarP(&out, "out", "o", "", "write the plan to `FILE`, for nixbench apply FILE")
	return cmd
}

var errChanges = failure.WithKind(failure.Changes, errors.New("apply would make these changes"))

// checkPlanFile returns an error if --out cannot write its file, out. It is called before anything is evaluated.
func checkPlanFile(a *app, out string, keepGoing bool) error {
	if out == "" {
		return nil
	}
	if keepGoing {
		return failure.NewUsage("--out and --keep-going exclude each other: a plan file contains all selected nodes")
	}
	for _, set := range a.sets {
		if runs.SafeArgs([]string{set})[0] != set {
			path, _, _ := strings.Cut(set, "=")
			return failure.NewUsage("--out: --set %s seems to contain a secret, and a plan file must not; use deployment.keys", path)
		}
	}
	if safe := runs.RemoveURLSecrets(a.request.Flake); safe != a.request.Flake {
		return failure.WithHint(failure.NewUsage("--out: --flake %s contains a secret, and a plan file must not", safe),
			"Nix's option access-tokens, and ~/.netrc, contain the credentials of flakes")
	}
	return checkOutput("--out", out, stages.IsPlan)
}

// checkOutput returns an error if a command cannot write the file that a flag names. If the file exists, isReplaceable says
// whether it may be replaced. An empty file, such as mktemp creates, may always be replaced.
func checkOutput(flag, file string, isReplaceable func(file string) bool) error {
	info, err := os.Stat(file)
	switch dir := filepath.Dir(file); {
	case err == nil && !info.Mode().IsRegular():
		return failure.NewUsage("%s %s: it exists and is not a file", flag, file)
	case err == nil && info.Size() > 0 && !isReplaceable(file):
		return failure.WithHint(failure.NewUsage("%s %s: the file exists, and nixbench does not replace it", flag, file), "choose another name, or remove the file")
	case !isFolder(dir):
		return failure.NewUsage("%s %s: there is no folder %s", flag, file, dir)
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
