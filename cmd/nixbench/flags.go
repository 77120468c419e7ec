package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/nixeval"
)

const (
	onHelp        = "only these `NODES`: names, globs, @tag or @role, between commas; !NAME excludes nodes; -: read them from stdin"
	acceptNewHelp = "accept and store the keys of hosts that known_hosts does not contain"
	rollbackHelp  = "`WHAT` rolls back when a switch fails or makes a node unreachable: node, or off: none"
	yesHelp       = "without --on, do not ask before all nodes are changed; necessary without a terminal"
	noHealthHelp  = "do not run deployment.healthChecks"
)

type fleetFlags struct {
	on        []string
	parallel  int
	acceptNew bool

	skipsAway, skipUnreachable bool // skipsAway: the command leaves out optional nodes that are away
}

func (f *fleetFlags) add(set *pflag.FlagSet) { f.addWithParallel(set, 10) }

func (f *fleetFlags) addWithParallel(set *pflag.FlagSet, parallel int) {
	set.StringArrayVar(&f.on, "on", nil, onHelp)
	set.IntVarP(&f.parallel, "parallel", "p", parallel, "work on at most `N` nodes at once; 0: on all")
	set.BoolVar(&f.acceptNew, "accept-new-host-keys", false, acceptNewHelp)
}

func (f *fleetFlags) addSkip(set *pflag.FlagSet) {
	f.skipsAway = true
	set.BoolVar(&f.skipUnreachable, "skip-unreachable", false, "leave out nodes at whose hosts nothing answers, as if all had deployment.optional")
}

// rollingFlags are the flags of commands that change the nodes of a running cluster in waves. Most of them are fields of options.
type rollingFlags struct {
	fleetFlags
	maxUnavailable string
	rollback       string // one of the words of addArming
	options        stages.Options
}

func (f *rollingFlags) add(set *pflag.FlagSet) {
	f.fleetFlags.add(set)
	f.addSkip(set)
	set.StringVar(&f.maxUnavailable, "max-unavailable", "", "change at most `N|P%` of the nodes at once, and stop after a failure")
	f.addDrain(set, "change nodes of a running cluster without a drain")
}

func (f *rollingFlags) addDrain(set *pflag.FlagSet, noDrain string) {
	set.BoolVar(&f.options.WithoutDrain, "no-drain", false, noDrain)
	var names, kinds []string
	for _, k := range deploy.EngineKinds() {
		for _, o := range k.DrainOptions {
			names, kinds = append(names, o.Name), append(kinds, o.Name+" ("+o.Help+")")
		}
	}
	set.Var(parser(func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			if !slices.Contains(names, name) {
				return fmt.Errorf("there is no work %q; there are %s", name, strings.Join(names, ", "))
			}
			f.options.Drain.Allowed = append(f.options.Drain.Allowed, name)
		}
		return nil
	}), "drain-delete", "let a drain delete this `WORK` permanently: "+strings.Join(kinds, ", "))
}

func (f *rollingFlags) toOptions() (stages.Options, error) {
	o := f.options
	o.Parallel, o.Partial, o.RollbackAll = f.parallel, len(f.on) > 0, f.rollback == "all"
	if f.rollback == "off" {
		o.Confirm = 0
	}
	if f.parallel < 0 {
		return o, failure.NewUsage("--parallel must not be negative (it is %d); 0 means all at once", f.parallel)
	}
	if o.WithoutDrain && len(o.Drain.Allowed) > 0 {
		return o, failure.NewUsage("--no-drain excludes --drain-delete, because nothing is drained")
	}
	var err error
	o.MaxUnavailable, err = selection.ParseShare(f.maxUnavailable)
	return o, err
}

// addArming defines the flags about the armed rollback: a node activates its previous system unless nixbench confirms the switch in time.
// rollbackWords are the values of --rollback that the command accepts, and more its other time limits.
func (f *rollingFlags) addArming(set *pflag.FlagSet, rollbackHelp string, rollbackWords []string, more ...timeLimit) {
	addChoice(set, &f.rollback, "rollback", "", rollbackWords, rollbackHelp)
	set.BoolVar(&f.options.WithoutHealthChecks, "no-health-checks", false, noHealthHelp)
	addTimeouts(set, append([]timeLimit{
		{"confirm", &f.options.Confirm, time.Minute, 5 * time.Second, "after its last progress, a node waits for a confirmation of the switch before it rolls back"},
		{"settle", &f.options.SettleTime, 3 * time.Second, 0, "for which units that the switch has started must stay up"},
	}, more...)...)
}

// timeLimit is a time limit that the flag --timeout sets.
type timeLimit struct {
	name        string
	value       *time.Duration
	preset, min time.Duration // the default, and the smallest value that the flag accepts
	help        string
}

// parser is the value of a flag that it parses. The help shows the default in quotes, unlike that of a pflag.Func.
type parser func(text string) error

func (p parser) Set(text string) error { return p(text) }
func (parser) String() string          { return "" }
func (parser) Type() string            { return "string" }

// addTimeouts defines the flag --timeout. If there is only one limit, the flag accepts a duration without a name.
func addTimeouts(set *pflag.FlagSet, limits ...timeLimit) {
	var names, each []string
	for _, l := range limits {
		text := l.name
		if *l.value = l.preset; l.preset > 0 {
			text += " (" + formatShortDuration(l.preset) + ")"
		}
		names, each = append(names, l.name), append(each, text+" "+l.help)
	}
	usage := "time limits, `NAME=DURATION` between commas: " + strings.Join(each, "; ")
	if len(limits) == 1 {
		usage = "time limit: `DURATION` " + limits[0].help
	}
	set.Var(parser(func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			name, duration, named := strings.Cut(part, "=")
			if !named && len(limits) == 1 {
				name, duration = names[0], part
			}
			i := slices.Index(names, name)
			if i < 0 {
				return fmt.Errorf("NAME=DURATION is expected, NAME being one of %s", strings.Join(names, ", "))
			}
			d, err := time.ParseDuration(duration)
			if err != nil {
				return err
			}
			if d < limits[i].min {
				return fmt.Errorf("the time limit %s must be at least %s", name, formatShortDuration(limits[i].min))
			}
			*limits[i].value = d
		}
		return nil
	}), "timeout", usage)
	if len(limits) == 1 {
		set.Lookup("timeout").DefValue = formatShortDuration(limits[0].preset)
	}
}

// addChoice defines a flag that accepts only words. The first word is its default.
func addChoice(set *pflag.FlagSet, value *string, name, shorthand string, words []string, usage string) {
	*value = words[0]
	set.VarP(parser(func(text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("it must be one of %s", strings.Join(words, ", "))
		}
		*value = text
		return nil
	}), name, shorthand, usage)
	set.Lookup(name).DefValue = words[0]
}

// colmenaFlags are flags of Colmena's apply, build and upload-keys. A command that does not define one accepts it without effect.
var colmenaFlags = []string{"parallel", "keep-result", "no-keys", "reboot", "no-substitute", "substitute-on-destination", "no-gzip", "gzip",
	"build-on-target", "no-build-on-target", "force-replace-unknown-profiles", "evaluator"}

// acceptFlags defines those of these flags of Colmena that the set lacks, without effect; only docs/from-colmena.md lists them.
func acceptFlags(set *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if set.Lookup(name) != nil {
			continue
		}
		f := set.VarPF(parser(func(string) error { return nil }), name, map[string]string{"parallel": "p"}[name], "accepted as in Colmena, without effect")
		if f.Hidden = true; name != "evaluator" && name != "parallel" {
			f.NoOptDefVal = "true" // it needs no value
		}
	}
}

// joinNixOptions converts `--nix-option NAME VALUE`, the syntax of Colmena and of Nix's own
// --option, to the single argument that the flag library supports.
func joinNixOptions(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--nix-option" && i+2 < len(args) && !strings.Contains(args[i+1], "=") {
			out = append(out, "--nix-option="+args[i+1]+"="+args[i+2])
			i += 2
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// addNixFlags defines the flags whose values become options of the evaluation.
func addNixFlags(set *pflag.FlagSet, o *nixeval.Options) {
	set.Var(parser(func(pair string) error {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return errors.New("a name and a value are needed: --nix-option NAME VALUE")
		}
		o.NixOptions = append(o.NixOptions, [2]string{name, value})
		return nil
	}), "nix-option", "pass `NAME VALUE` to Nix as --option; repeatable")
	set.IntVar(&o.Workers, "eval-workers", 0, "evaluate in at most `N` Nix processes at once (default: what cores and memory allow)")
	set.Var(parser(func(text string) (err error) {
		switch text {
		case "auto":
			o.ChunkSize = 0
		case "0", "unlimited":
			o.ChunkSize = nixeval.Unlimited
		default:
			if o.ChunkSize, err = strconv.Atoi(text); err != nil || o.ChunkSize < 0 {
				return errors.New("a number of nodes, auto or unlimited is needed")
			}
		}
		return nil
	}), "eval-node-limit", "evaluate at most `N` nodes in one Nix process; auto: what memory allows; 0 or unlimited: all")
	set.Lookup("eval-node-limit").DefValue = "auto"
}
