package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/failure"
)

const rootLong = `nixbench deploys NixOS to existing machines, as Colmena does, and to machines
that it boots itself.

It reads a hive: Colmena's hive.nix, unchanged, or one with roles in addition.
The hive is the nearest hive.nix (or flake.nix with an output nixbenchHive,
colmena, colmenaHive or nixosConfigurations) in the working directory or a
folder above it; -f and --flake select another.
nixbench init writes a first one.

Exit codes: 0 done, 1 internal error, 2 usage, 3 evaluation, 4 build,
5 machines, 6 unreachable, 7 copy, 8 activation, 9 check failed, 10 locked,
11 changes (plan --exit-code), 12 plan outdated, 130 interrupted.`

func newRootCommand(a *app) *cobra.Command {
	cobra.EnableCommandSorting = false // the help lists commands in the order of AddCommand, which follows the typical workflow
	root := &cobra.Command{
		Use:           "nixbench",
		Short:         "Deploy NixOS to existing machines, and to machines that nixbench boots",
		Long:          rootLong,
		SilenceErrors: true, // app.finish shows errors
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2, // the number of edits from an unknown command to a suggested one
	}
	var version bool
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if version {
			return a.withView(func([]string) error { return showVersion(a.view) })(cmd, args)
		}
		return cmd.Help()
	}
	root.Flags().BoolVarP(&version, "version", "V", false, "print the version, as nixbench version does")
	f := root.PersistentFlags()
	f.StringVarP(&a.request.File, "file", "f", "", "hive `FILE`, or the folder that contains it; with a colon, and if no such file exists, a flake reference as for --flake")
	f.StringVar(&a.request.Flake, "flake", "", "flake `REF`: a folder or a URL, with #output if it is not nixbenchHive, colmena or colmenaHive")
	f.StringArrayVar(&a.sets, "set", nil, "set `PATH=VALUE` in roles or cluster, such as roles.worker.count=5; scheduler=NAME is short for cluster.scheduler=NAME; repeatable")
	f.StringVar(&a.request.Eval.Facts, "facts", "", "evaluate with the facts in `FILE` (see nixbench facts --schema); modules get them as the argument runtime")
	f.BoolVar(&a.request.Eval.ShowTrace, "show-trace", false, "show the full stack trace of Nix errors")
	f.BoolVar(&a.request.Eval.Impure, "impure", false, "let a flake read files and environment variables outside of it")
	f.BoolVar(&a.acceptConfig, "accept-flake-config", false, "trust the settings of Nix in nixConfig of a flake")
	f.BoolVar(&a.noEvalCache, "no-eval-cache", false, "evaluate a flake again, even if nothing that the evaluation reads has changed")
	f.BoolVar(&a.request.SSHPrograms, "allow-ssh-programs", false, "let deployment.sshOptions run programs on this computer, such as ProxyCommand")
	addNixFlags(f, &a.request.Eval)
	f.BoolVar(&a.json, "json", false, "write events and the result as JSON, one object per line (docs/events.md)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show build logs and copied paths")
	addChoice(f, &a.color, "color", "", []string{"auto", "always", "never"}, "`WHEN` to use colours: always, never, or auto: on a terminal, unless NO_COLOR is set")
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
	root.AddGroup(&cobra.Group{ID: "Other", Title: "Other:"})
	setDefaults(root)
	addHelp(root, "Other")
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// setDefaults sets for a command and all commands below it what most of them have in common: they take no arguments, and the help
// shows their flags in the order of their definition.
func setDefaults(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	for _, c := range cmd.Commands() {
		setDefaults(c)
	}
}

// usageTemplate is the part of the help that follows the description of a command.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{$all := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $all}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}}  {{.Short}}{{end}}{{end}}{{end}}{{if and .HasAvailableSubCommands (not .Groups)}}

Commands:{{range $all}}
  {{rpad .Name .NamePadding}}  {{.Short}}{{end}}{{end}}{{with flagsOf .}}

Flags:
{{.}}{{end}}

Global flags: nixbench help flags
`

// addHelp sets the format of the help. It adds the commands help and completion to a group, and the help topic flags. It is called
// after all other commands and all flags were added.
func addHelp(root *cobra.Command, group string) {
	cobra.AddTemplateFunc("flagsOf", func(cmd *cobra.Command) string {
		flags := cmd.LocalNonPersistentFlags()
		flags.SortFlags = false
		return strings.TrimRight(flags.FlagUsagesWrapped(80), "\n")
	})
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpCommandGroupID(group)
	root.SetCompletionCommandGroupID(group)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Aliases = []string{"gen-completions"} // Colmena's name
	}
	if bash, _, err := root.Find([]string{"completion", "bash"}); err == nil { // one of its lines is too long
		bash.Long = strings.Replace(bash.Long, " via your OS's package manager.", "\nvia your OS's package manager.", 1)
	}
	root.AddCommand(&cobra.Command{ // a command without a body is a topic of the command help
		Use:   "flags",
		Short: "Flags of all commands",
		Long:  "Flags of all commands:\n\n" + root.PersistentFlags().FlagUsagesWrapped(80),
	})
}

var unknownCommandRE = regexp.MustCompile(`^unknown command "([^"]+)"`)

// suggestCorrection converts an error of the command-line parser to a usage error, whose hint has the command that was perhaps meant.
func suggestCorrection(cmd *cobra.Command, err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n") // without the suggestion of cobra, which follows the first line
	hint := "see " + cmd.CommandPath() + " --help"
	if m := unknownCommandRE.FindStringSubmatch(text); m != nil {
		if near := cmd.SuggestionsFor(m[1]); len(near) > 0 {
			hint = "did you mean " + near[0] + "? S" + hint[1:]
		}
	}
	return failure.WithHint(failure.NewUsage("%s", text), hint)
}

// version and commit are set by a build outside of the git repository, with -ldflags "-X main.version=… -X main.commit=…". If they
// are empty, readBuildVersion reads Go's build information.
var version, commit string

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of nixbench",
		RunE:  a.withView(func([]string) error { return showVersion(a.view) }),
	}
}

func showVersion(view *ui.View) error {
	v := readBuildVersion()
	view.Result(v, func(w io.Writer) {
		fmt.Fprintf(w, "nixbench %s", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(w, " (%s)", v.Commit)
		}
		fmt.Fprintf(w, " %s", v.Go)
		if !v.Libvirt {
			fmt.Fprint(w, ", without libvirt: it deploys to existing machines and creates none")
		}
		fmt.Fprintln(w)
	})
	return nil
}

type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Libvirt bool   `json:"libvirt"` // whether the program can create machines
}

func readBuildVersion() versionView {
	v := versionView{Version: version, Commit: commit, Libvirt: hasLibvirt}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go, v.Version = info.GoVersion, cmp.Or(version, info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = cmp.Or(commit, s.Value)
		}
	}
	v.Commit = v.Commit[:min(12, len(v.Commit))]
	return v
}
