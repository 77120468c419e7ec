package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand returns the hidden command that writes the manual pages. The Nix package of nixbench runs this command when it is
// built.
func manCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		root := cmd.Root()
		root.InitDefaultCompletionCmd()
		return writeManuals(args[0], root)
	})
	return cmd
}

// writeManuals writes the manual pages of a command and of all commands below it into a folder.
func writeManuals(dir string, cmd *cobra.Command) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(formatManual(name, cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			if err := writeManuals(dir, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// formatManual returns the manual page of a command in roff. The help text keeps its line breaks.
func formatManual(name string, cmd *cobra.Command) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	verbatim := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", escapeRoff(strings.TrimRight(text, "\n"))) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"nixbench\"\n", escapeRoff(strings.ToUpper(name)))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escapeRoff(name), escapeRoff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", escapeRoff(cmd.UseLine()))
	section("DESCRIPTION")
	if cmd.Long != "" {
		verbatim(cmd.Long)
	} else {
		fmt.Fprintf(&b, "%s.\n", escapeRoff(cmd.Short))
	}
	if cmd.HasExample() {
		section("EXAMPLES")
		verbatim(cmd.Example)
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		section("OPTIONS")
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			names := "--" + f.Name
			if f.Shorthand != "" {
				names = "-" + f.Shorthand + ", " + names
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(strings.TrimSpace(names+" "+value)), escapeRoff(usage))
			if value := defaultOf(f); value != "" {
				b.WriteString(escapeRoff("(default: "+value+")") + "\n")
			}
		})
	}
	if root := cmd.Root(); cmd != root {
		section("OPTIONS OF ALL COMMANDS")
		fmt.Fprintf(&b, "See\n.BR %s (1).\n", escapeRoff(root.Name()))
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, name+"-"+sub.Name())
		}
	}
	section("SEE ALSO")
	for i, page := range also {
		comma := ","
		if i == len(also)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", escapeRoff(page), comma)
	}
	return b.String()
}

// defaultOf returns the default of a flag. It returns "" for a flag that is not set by default, because the help text of such a
// flag says what happens without it.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "0", "0s", "false", "[]":
		return ""
	}
	return f.DefValue
}

// escapeRoff escapes text so that roff prints it literally.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
