package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/event"
)

// complete teaches the shell what only the hive knows: its nodes, their tags. That
// takes a survey, which is cheap enough to wait for.
func (a *app) complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("on") != nil {
			_ = cmd.RegisterFlagCompletionFunc("on", a.completeOn)
		}
		if cmd.Name() == "ssh" {
			cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				nodes, _ := a.names()
				return nodes, cobra.ShellCompDirectiveNoFileComp
			}
		}
	}
}

// completeOn completes the last of the terms between commas.
func (a *app) completeOn(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	if strings.HasPrefix(typed[len(before):], "!") {
		before += "!"
	}
	nodes, tags := a.names()
	var out []string
	for _, term := range append(nodes, tags...) {
		out = append(out, before+term)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// names are the hive's nodes, and its tags and roles as terms of --on. A hive that
// cannot be read has none: a shell's line is no place to complain.
func (a *app) names() (nodes, tags []string) {
	a.sink = func(event.Event) {}
	e, err := a.evaluator()
	if err != nil {
		return nil, nil
	}
	hive, err := e.Survey(a.ctx)
	if err != nil {
		return nil, nil
	}
	known := map[string]bool{}
	for _, n := range hive.Nodes {
		nodes = append(nodes, n.Name)
		for _, tag := range append([]string{n.Role}, n.Tags...) {
			if tag != "" {
				known["@"+tag] = true
			}
		}
	}
	return nodes, sortedNames(known)
}
