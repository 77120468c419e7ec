package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the maximum length of a line of the help.
const helpWidth = 80

// helpWriter writes the help and the shell completion. The flag library ignores some write errors, and takes others for errors of
// the command line. So Write hides them from the library, and app.finish reports them.
type helpWriter struct{ app *app }

func (h helpWriter) Write(p []byte) (int, error) {
	h.app.openView()
	stdout, _ := h.app.view.Raw()
	_, _ = stdout.Write(p)
	return len(p), nil
}

// addGroup adds commands to a group of the help. If root does not contain the group, addGroup creates it.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	if !root.ContainsGroup(title) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	}
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// addHelp sets the format of the help. It adds the commands help and completion to a group, and adds the help topic flags. It is
// called after all other commands and all flags were added.
func addHelp(a *app, root *cobra.Command, group string) {
	root.SetUsageFunc(writeUsage)
	root.SetHelpCommandGroupID(group)
	root.SetCompletionCommandGroupID(group)
	root.InitDefaultCompletionCmd()
	if bash, _, err := root.Find([]string{"completion", "bash"}); err == nil { // one of its lines is too long
		bash.Long = strings.Replace(bash.Long, " via your OS's package manager.", "\nvia your OS's package manager.", 1)
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.ValidArgsFunction = completeHelp
		help.Run = nil
		help.RunE = a.withView(func(args []string) error { return showHelp(root, args) })
	}
	root.AddCommand(&cobra.Command{ // a command without a body is a topic of the command help
		Use:   "flags",
		Short: "Flags of all commands",
		Long:  "Flags of all commands:\n\n" + root.PersistentFlags().FlagUsagesWrapped(helpWidth),
	})
}

// completeHelp completes the names of commands and topics that the command help can show. cobra's own completion leaves out
// topics.
func completeHelp(help *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	parent, _, err := help.Root().Find(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, c := range parent.Commands() {
		if strings.HasPrefix(c.Name(), typed) && (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() || c == help) && !c.Hidden {
			out = append(out, cobra.CompletionWithDesc(c.Name(), c.Short))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// showHelp shows the help of the command that args name. Unlike cobra's command help, it fails if there is no such command.
func showHelp(root *cobra.Command, args []string) error {
	cmd, _, err := root.Find(args)
	if err != nil {
		return suggestCorrection(root, err)
	}
	cmd.InitDefaultHelpFlag()
	return cmd.Help()
}

// writeOverview writes the output of nixbench without arguments: the names of the commands by group. It fits a small terminal.
func writeOverview(root *cobra.Command) error {
	out := root.OutOrStdout()
	fmt.Fprint(out, "nixbench deploys NixOS to existing machines, and to machines that it boots.\n\n")
	width := 0
	for _, g := range root.Groups() {
		width = max(width, len(g.Title))
	}
	for _, g := range root.Groups() {
		line := fmt.Sprintf("%-*s", width, g.Title)
		for _, c := range commandsOf(root, g.ID) {
			if len(line)+1+len(c.Name()) > helpWidth {
				fmt.Fprintln(out, line)
				line = strings.Repeat(" ", width)
			}
			line += " " + c.Name()
		}
		fmt.Fprintln(out, line)
	}
	_, err := fmt.Fprint(out, `
nixbench help          all commands, with their descriptions
nixbench help COMMAND  one command, with its flags and examples
nixbench help flags    the flags of all commands
`)
	return err
}

// commandsOf returns those of the commands below cmd that the help lists in this group. If group is empty, it returns the commands
// without a group.
func commandsOf(cmd *cobra.Command, group string) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return c.GroupID != group || !c.IsAvailableCommand() && c.Name() != "help"
	})
}

// writeUsage writes the part of the help that follows the description of a command.
func writeUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	for _, g := range append(cmd.Groups(), &cobra.Group{Title: "Commands:"}) {
		writeCommands(&b, g.Title, commandsOf(cmd, g.ID))
	}
	if flags := cmd.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		flags.SortFlags = false
		fmt.Fprintf(&b, "\nFlags:\n%s", flags.FlagUsagesWrapped(helpWidth))
	}
	b.WriteString("\nGlobal flags: nixbench help flags\n")
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// writeCommands writes the names and the descriptions of commands below a title.
func writeCommands(b *strings.Builder, title string, commands []*cobra.Command) {
	if len(commands) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, c := range commands {
		fmt.Fprintf(b, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
	}
}
