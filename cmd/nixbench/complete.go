package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// registerCompletion registers the completion of node names and tags in the shell. Each completion surveys the hive, which is fast
// enough for that.
func registerCompletion(a *app, root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("on") != nil {
			_ = cmd.RegisterFlagCompletionFunc("on", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return completeOn(a, typed)
			})
		}
		if strings.Contains(cmd.Use, "NODE") && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 || cmd.Flags().Changed("on") { // --on selects the node
					return nil, cobra.ShellCompDirectiveDefault
				}
				nodes, _ := listCompletionTerms(a)
				return nodes, cobra.ShellCompDirectiveNoFileComp
			}
		}
	}
}

// completeOn completes the last term of a comma-separated --on.
func completeOn(a *app, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	if strings.HasPrefix(typed[len(before):], "!") {
		before += "!"
	}
	nodes, tags := listCompletionTerms(a)
	var out []string
	for _, term := range append(nodes, tags...) {
		out = append(out, before+term)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// listCompletionTerms returns the names of the hive's nodes. It also returns the hive's tags and roles, with a leading @ as --on
// expects. If the hive cannot be evaluated, it returns nothing, because a completion must not print errors.
func listCompletionTerms(a *app) (nodes, tags []string) {
	r, err := a.newRequest(fleetFlags{})
	if err != nil {
		return nil, nil
	}
	e, err := r.Evaluator() // sends no events
	if err != nil {
		return nil, nil
	}
	hive, err := e.Survey(a.ctx)
	if err != nil {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, n := range hive.Nodes {
		nodes = append(nodes, n.Name)
		for _, tag := range append([]string{n.Role}, n.Tags...) {
			if tag != "" {
				seen["@"+tag] = true
			}
		}
	}
	return nodes, sortedNames(seen)
}
