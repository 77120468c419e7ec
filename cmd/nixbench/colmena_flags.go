package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// colmenaFlags are flags of Colmena's apply, build and upload-keys. If a command of nixbench does not define one of them, the flag
// is accepted and has no effect.
var colmenaFlags = []string{"parallel", "keep-result", "no-keys", "reboot", "no-substitute", "no-gzip", "gzip", "build-on-target", "no-build-on-target",
	"force-replace-unknown-profiles", "evaluator"}

// acceptFlags defines flags of Colmena that have no effect. It leaves out a flag whose name the set already has. The help does not
// show these flags: docs/from-colmena.md lists them.
func acceptFlags(set *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if set.Lookup(name) != nil {
			continue
		}
		const usage = "accepted as in Colmena, without effect"
		switch name {
		case "evaluator":
			addChoice(set, new(string), name, []string{"chunked", "streaming"}, usage)
		case "parallel":
			set.IntP(name, "p", 0, usage)
		default:
			set.Bool(name, false, usage)
		}
		set.Lookup(name).Hidden = true
	}
}

// choice is the value of a flag that accepts only some words.
type choice struct {
	value *string
	words []string
}

// addChoice defines a flag that accepts only words. The first word is its default.
func addChoice(set *pflag.FlagSet, value *string, name string, words []string, usage string) {
	*value = words[0]
	set.Var(&choice{value, words}, name, usage)
}

func (c *choice) String() string { return *c.value }

func (c *choice) Type() string { return "string" }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("it must be one of %s", strings.Join(c.words, ", "))
	}
	*c.value = text
	return nil
}

// parseNodeLimit parses --eval-node-limit and returns the ChunkSize of nixeval.Options.
func parseNodeLimit(text string) (int, error) {
	switch text {
	case "auto", "":
		return 0, nil
	case "0", "unlimited":
		return nixeval.Unlimited, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, failure.NewUsage("--eval-node-limit must be a number of nodes, auto or unlimited (it is %q)", text)
	}
	return n, nil
}

// genCompletionsCommand returns the command gen-completions: Colmena's name for nixbench's command completion.
func genCompletionsCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:       "gen-completions SHELL",
		Short:     "Generate a completion script, like nixbench completion",
		Hidden:    true,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			completion, _, err := root.Find([]string{"completion", args[0]})
			if err != nil {
				return err
			}
			return completion.RunE(completion, nil)
		},
	}
}
