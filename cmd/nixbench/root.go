package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootLong = `nixbench deploys NixOS to existing machines, as Colmena does, and to machines
that it boots itself.

It reads a hive: Colmena's hive.nix, unchanged, or one with roles in addition.
The hive is the nearest hive.nix (or flake.nix with an output nixbenchHive,
colmenaHive or colmena) in the working directory or a folder above it; -f and
--flake select another. Systems in the nixosConfigurations of the flake are
nodes, too, also if it has no hive.

  { meta.nixpkgs = import <nixpkgs> { };
    defaults = { name, ... }: { networking.hostName = name; };
    web = { deployment.tags = [ "front" ]; };  # a node, as in Colmena
    roles.worker = {                           # worker-1, worker-2, worker-3:
      count = 3;                               # one closure, evaluated once
      modules = [ ./worker.nix ];
    };
  }

Exit codes: 0 done, 1 internal error, 2 usage, 3 evaluation, 4 build,
5 machines, 6 unreachable, 7 copy, 8 activation, 9 check failed, 10 locked,
11 changes (plan --exit-code), 12 plan outdated, 130 interrupted.`

const onHelp = "only these `NODES`: names, globs, @tag or @role, between commas; !NAME excludes nodes; -: read them from stdin"

func newRootCommand(a *app) *cobra.Command {
	cobra.EnableCommandSorting = false // the help lists commands in the order of AddCommand, which follows the typical workflow
	root := &cobra.Command{
		Use:           "nixbench",
		Short:         "Deploy NixOS to existing machines, and to machines that nixbench boots",
		Long:          rootLong,
		SilenceErrors: true, // app.finish shows errors
		SilenceUsage:  true,
	}
	root.SetOut(helpWriter{a}) // before the completion commands are added, so that their output is not changed
	var version bool
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if version {
			return a.withView(func([]string) error { return showVersion(a.view) })(cmd, args)
		}
		return writeOverview(cmd)
	}
	root.Flags().BoolVarP(&version, "version", "V", false, "print the version, as nixbench version does")
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVarP(&a.file, "file", "f", "", "hive `FILE`, or the folder that contains it; with a colon, and if no such file exists, a flake reference as for --flake")
	f.StringVar(&a.flake, "flake", "", "flake `REF`: a folder or a URL, with #output if it is not nixbenchHive, colmenaHive or colmena")
	f.StringArrayVar(&a.sets, "set", nil, "set `PATH=VALUE` in roles or cluster, such as roles.worker.count=5; scheduler=NAME is short for cluster.scheduler=NAME; repeatable")
	f.StringVar(&a.factsFile, "facts", "", "evaluate with the facts in `FILE` (see nixbench facts --schema); modules get them as the argument runtime")
	f.BoolVar(&a.showTrace, "show-trace", false, "show the full stack trace of Nix errors")
	f.BoolVar(&a.impure, "impure", false, "let a flake read files and environment variables outside of it")
	f.BoolVar(&a.sshPrograms, "allow-ssh-programs", false, "let deployment.sshOptions run programs on this computer, such as ProxyCommand")
	f.StringArrayVar(&a.nixOptions, "nix-option", nil, "pass `NAME VALUE` to Nix as --option; repeatable")
	f.IntVar(&a.evalWorkers, "eval-workers", 0, "evaluate in at most `N` Nix processes at once (default: what cores and memory allow)")
	f.StringVar(&a.evalNodeLimit, "eval-node-limit", "auto", "evaluate at most `N` nodes in one Nix process; auto: what memory allows; 0 or unlimited: all")
	f.BoolVar(&a.json, "json", false, "write events and the result as JSON, one object per line (docs/events.md)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show build logs and copied paths")
	addChoice(f, &a.color, "color", []string{"auto", "always", "never"}, "`WHEN` to use colours: always, never, or auto: on a terminal, unless NO_COLOR is set")
	acceptFlags(f, "legacy-flake-eval", "experimental-flake-eval")
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name { // as in Colmena
		case "config":
			name = "file"
		case "no-substitutes":
			name = "no-substitute"
		}
		return pflag.NormalizedName(name)
	})
	addGroup(root, "Deploy", initCommand(a), applyCommand(a), applyLocalCommand(a), planCommand(a), buildCommand(a), evalCommand(a), uploadKeysCommand(a))
	addGroup(root, "Look", statusCommand(a), checkCommand(a), doctorCommand(a), supportCommand(a), factsCommand(a), runsCommand(a), explainCommand(a), replCommand(a),
		nixInfoCommand(a), versionCommand(a))
	addGroup(root, "Go back", generationsCommand(a), rollbackCommand(a))
	addGroup(root, "Machines and nodes", execCommand(a), sshCommand(a), logsCommand(a), consoleCommand(a), startCommand(a), stopCommand(a), rebootCommand(a), destroyCommand(a), secretsCommand(a), stateCommand(a),
		kubeconfigCommand(a), kubectlCommand(a))
	addGroup(root, "Benchmarks", benchCommand(a))
	addGroup(root, "Other", manCommand(a), genCompletionsCommand(root))
	addHelp(a, root, "Other")
	root.Flags().SortFlags = false
	registerCompletion(a, root)
	return root
}
