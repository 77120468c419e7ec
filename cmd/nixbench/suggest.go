package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy/failure"
)

var mistypedRE = regexp.MustCompile(`^(unknown flag: --|unknown command "|invalid argument ")([^"=\s]+)`)

// suggestCorrection converts an error of the command-line parser to a usage error. If a command,
// flag or argument is mistyped, the error has a hint with the most similar valid word.
func suggestCorrection(cmd *cobra.Command, err error) error {
	see := cmd.CommandPath() + " --help"
	// Remove the suggestion of cobra, which follows the first line.
	text, _, _ := strings.Cut(err.Error(), "\n")
	m := mistypedRE.FindStringSubmatch(text)
	if m == nil || strings.Contains(text, `" flag: `) { // the value of a flag is invalid
		return failure.WithHint(failure.WithKind(failure.Usage, err), "see "+see)
	}
	var words []string
	prefix := ""
	switch m[1] {
	case `unknown command "`:
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				words = append(words, c.Name())
			}
		}
	case "unknown flag: --":
		prefix = "--"
		add := func(f *pflag.Flag) { words = append(words, f.Name) }
		cmd.LocalFlags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
	default:
		words = cmd.ValidArgs
		if len(words) > 0 {
			text = fmt.Sprintf("%s: there is no %q; there are %s", cmd.Name(), m[2], strings.Join(words, ", "))
		}
	}
	hint := "see " + see
	if near := findNearestWord(m[2], words); near != "" {
		if prefix != "" && cmd.Root().PersistentFlags().Lookup(near) != nil {
			see = "nixbench help flags"
		}
		hint = fmt.Sprintf("did you mean %s%s? See %s", prefix, near, see)
	}
	return failure.WithHint(failure.NewUsage("%s", text), hint)
}

// findNearestWord returns the word that is most similar to typed, or an empty string if no word is
// similar.
func findNearestWord(typed string, words []string) string {
	choice := &cobra.Command{SuggestionsMinimumDistance: 1}
	for _, w := range words {
		choice.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	for ; choice.SuggestionsMinimumDistance <= 2; choice.SuggestionsMinimumDistance++ {
		if found := choice.SuggestionsFor(typed); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
